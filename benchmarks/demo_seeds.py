"""The demo on ten seeds: before, after, later, and what the audit concludes.

    python benchmarks/demo_seeds.py [--out results/demo-digits.json] [--seeds 21 22 ...]

Each run is `fupareto demo --seed SEED`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KEPT = ("seed", "versions", "created", "forget", "method", "final", "cost", "phases", "checks")


def told(run: Path) -> dict[str, Any]:
    """Return what the page of small scales says of a run."""
    summary, audit = (json.loads((run / name).read_text()) for name in ("summary.json", "audit.json"))
    final = summary["final"]
    measured = {
        stage: {key: value for key, value in found.items() if key not in ("clients", "mia_auc")}
        for stage, found in summary["stages"].items()
    }
    return {
        **{key: summary[key] for key in KEPT},
        "stages": measured,
        "later": {model: found["worst"] for model, found in audit["dormancy"]["models"].items()},
        "relearning": {model: found["mean"] for model, found in audit["relearning"]["models"].items()},
        "way": {measure: found["models"].get(final, {}).get("value") for measure, found in audit["way"].items()},
        "verdicts": {check["name"]: check["result"] for check in audit["verdict"]["checks"]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/demo-digits.json"))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(21, 31)))
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in given.seeds:
            run = Path(scratch) / f"demo-{seed}"
            command = (sys.executable, "-m", "fupareto", "demo", "--seed", str(seed), "--out", str(run), "--quiet")
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found[run.name] = told(run)
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
