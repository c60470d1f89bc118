"""How much faster is the command line than that of an earlier version?

    python benchmarks/versions.py [--before 96864b2] [--data DIR] [--tiny] [--out benchmarks/versions.json]

The same experiment files, run by both versions in turns, each run a process of its own: rounds of FedAvg on random
images, by the seconds that the run itself records; and, where Fashion-MNIST is on disk, a twentieth of the rounds of
experiments/table1-fmnist.toml at its laptop scale (one seed, five forget clients, all methods), by the clock. The
earlier version comes out of the git history, by default the last one before 0.2.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tomli_w

from common import RESULTS, interleaved, ratios, seconds, skip, spread, write
from fupareto.data import sources as data

ROOT = Path(__file__).parents[1]
BEFORE, GUARD_BEFORE = "96864b2", "fupareto"  # where the algorithm without renewal was the default
ROUNDS = 4  # the first is not counted
CASES = (("lenet5", 200, 20_000), ("lenet5", 20, 10_000), ("cnn", 200, 3_000), ("cnn", 20, 3_000))
TINY = (("lenet5", 20, 400),)
SHAPES = {"lenet5": (1, 28, 28), "cnn": (3, 32, 32)}
TABLE = ROOT / "experiments" / "table1-fmnist.toml"
SHARE = 20  # a twentieth of the table's rounds
COMMAND = "from fupareto.cli import main; main()"


def checkout(revision: str, to: Path) -> Path:
    """Write the package of a revision below a directory and return where Python finds it."""
    packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(to, filter="data")
    return to / "src"


def fupareto(source: Path, *arguments: str) -> None:
    """Run the command of a version, without progress; raise with its last words if it fails."""
    command = [sys.executable, "-c", COMMAND, *arguments, "--quiet"]
    done = subprocess.run(command, env={"PYTHONPATH": str(source), "PATH": ""}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{source}: {' '.join(arguments)}\n{done.stdout[-500:]}{done.stderr[-2000:]}")


def train(source: Path, model: str, batch: int, samples: int) -> float:
    """Return the median seconds of a round of FedAvg by ten clients, after the first."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        generator = np.random.default_rng(0)
        x = generator.random((samples, *SHAPES[model]), dtype=np.float32)
        np.savez(folder / "random.npz", x=x, y=generator.integers(10, size=samples))
        experiment = {
            "name": "rounds",
            "model": model,
            "data": {"source": str(folder / "random.npz")},
            "partition": {"kind": "iid", "clients": 10},
            "train": {"rounds": ROUNDS, "lr": 0.01, "batch_size": batch},
            "request": {"clients": 1},
        }
        (folder / "rounds.toml").write_text(tomli_w.dumps(experiment))
        fupareto(source, "train", str(folder / "rounds.toml"), "--out", str(folder / "run"))
        lines = (folder / "run" / "rounds.jsonl").read_text().splitlines()
        return float(median(json.loads(line)["seconds"] for line in lines[1:]))


def table(source: Path, guard: str, data: Path) -> float:
    """Return the seconds of a twentieth of Table I, by the version's name of the algorithm without renewal."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "table.toml"
        file.write_text(tomli_w.dumps(shortened(guard)))
        return seconds(lambda: fupareto(source, "bench", str(file), "--out", f"{directory}/out", "--data", str(data)))


def shortened(guard: str = "fupareto:guard") -> dict[str, Any]:
    """Return the bench of Table I with a twentieth of the rounds of every stage."""
    bench = tomllib.loads(TABLE.read_text())
    laptop = bench["scales"]["laptop"]
    experiment = {**bench["experiment"], "data": {**bench["experiment"]["data"], **laptop["experiment"]["data"]}}
    experiment["train"] = {**bench["experiment"]["train"], **laptop["experiment"]["train"]}
    experiment["train"] |= {"rounds": experiment["train"]["rounds"] // SHARE, "keep": 100 // SHARE}
    return {
        "name": "table",
        "title": "A twentieth of Table I",
        "seeds": [9],
        "measure_every": laptop["measure_every"],
        "experiment": experiment,
        "settings": [{k: v for k, v in s.items() if k != "paper"} for s in bench["settings"] if s["name"] == "CN=5"],
        "methods": [
            {
                "method": guard if m["method"] == "fupareto:guard" else m["method"],
                "label": m["label"],
                "options": {k: _share(k, v) for k, v in m["options"].items()},
            }
            for m in bench["methods"]
        ],
    }


def _share(option: str, value: Any) -> Any:
    return value // SHARE if option.endswith("rounds") else value


def compared(work: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, Any]:
    """Let both versions take turns."""
    times = interleaved(work, repeats)
    return {
        "seconds": {name: spread(t) for name, t in times.items()},
        "times_as_fast": ratios(times["before"], times["after"]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help="the earlier revision; now: this one again")
    parser.add_argument("--data", type=Path, help="directory of the data sets; by default the command line's")
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "versions.json")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        now = ROOT / "src"
        sources = {"before": now if chosen.before == "now" else checkout(chosen.before, Path(directory)), "after": now}
        rounds = []
        for model, batch, samples in TINY if chosen.tiny else CASES:
            print(f"{model}, batches of {batch}:", flush=True)
            work = {name: partial(train, s, model, batch, samples) for name, s in sources.items()}
            case = {"model": model, "batch": batch, "samples": samples, "clients": 10}
            rounds.append({**case, **compared(work, 1 if chosen.tiny else 5)})
        result: dict[str, Any] = {"before": chosen.before, "rounds": rounds, "table": None}
        root = data.data_root(chosen.data)
        if chosen.tiny or not data.status(root)["fashion-mnist"].startswith("on disk"):
            result["skipped"] = skip("a twentieth of Table I", f"no Fashion-MNIST in {root}, or --tiny")
        else:
            print("a twentieth of Table I:", flush=True)
            names = {"before": GUARD_BEFORE if chosen.before == BEFORE else "fupareto:guard", "after": "fupareto:guard"}
            work = {name: partial(table, s, names[name], root) for name, s in sources.items()}
            result["table"] = compared(work, 2)
        write(chosen.out, result)


if __name__ == "__main__":
    main()
