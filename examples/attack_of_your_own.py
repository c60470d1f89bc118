"""Your own attack on a finished run: membership inference with non-members that do not carry the trigger.

    python examples/attack_of_your_own.py [RUN...]

The audit puts the trigger on a client's held-out samples as on its training samples, so that an attack can only use
membership. This attack uses held-out samples without the trigger, so it can also tell triggered from clean samples. It
prints one AUC per forget client as JSON, for the initial and the final model. Without RUN, it first makes a small run
on the embedded digits in a temporary directory.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from fupareto import config
from fupareto import experiment as experiments
from fupareto.audit.attacks import membership
from fupareto.audit.attacks.outputs import outputs
from fupareto.federation import Request
from fupareto.run.directory import Run


def attacked(path: Path) -> dict[str, dict[str, float]]:
    """Return the AUC of the learned attack on sorted outputs, by stage and client."""
    run = Run.open(path)
    request = Request.from_json(run.request)
    federation, _ = experiments.federation(experiments.stored_experiment(run), request)
    found = {}
    for stage in ("initial", run.summary["final"]):
        tensors = run.load_model(stage)
        assert tensors is not None
        w = federation.layout.flat(tensors)
        members, _ = outputs(federation, w, request.clients, ("member",))
        nonmembers, _ = outputs(federation, w, request.clients, ("test",))
        results = {
            i: membership.attack(members[i], nonmembers[i], np.random.default_rng(0)).results for i in request.clients
        }
        found[stage] = {i: round(result["confidence"]["auc"], 3) for i, result in results.items()}
    return found


def small_run(folder: Path) -> Path:
    """Train a model on digits, forget two clients, and return the run directory."""
    options = {"lr": 0.1, "rounds": 10, "recovery_rounds": 5}
    experiment = config.validate({"train": {"rounds": 40}, "unlearn": {"options": options}}, "the example")
    experiments.train(experiment, folder / "training")
    return experiments.unlearn(folder / "training", folder / "forgotten").path


def main(paths: list[str]) -> None:
    """Attack the given runs, or a new small one."""
    if paths:
        print(json.dumps({path: attacked(Path(path)) for path in paths}, indent=2))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"a small run on digits": attacked(small_run(Path(folder)))}, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
