"""An attack of your own on a finished run: what if the non-members did not carry the trigger?

    python examples/attack_of_your_own.py [RUN...]

The audit marks a client's held-out samples as its training samples are marked, so that an attack has to see
membership. This attack leaves them as they are: it tells a triggered sample from an ordinary one, whoever trained on
it. One AUC per forgotten client, for the model before and the one that was kept, as JSON. Without a RUN, a small one
is made on the embedded digits first, in a temporary directory.
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
    """Return by stage and client the AUC of the learned attack on sorted outputs."""
    run = Run.open(path)
    request = Request.from_json(run.request)
    federation, _ = experiments.federation(experiments.stored_experiment(run), request)
    found = {}
    for stage in ("initial", run.summary["final"]):
        tensors = run.load_model(stage)
        assert tensors is not None
        w = federation.layout.flat(tensors)
        members, _ = outputs(federation, w, request.clients, ("member",))
        strangers, _ = outputs(federation, w, request.clients, ("test",))
        results = {
            i: membership.attack(members[i], strangers[i], np.random.default_rng(0)).results for i in request.clients
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
    """Attack the runs that are named, or one that is made here."""
    if paths:
        print(json.dumps({path: attacked(Path(path)) for path in paths}, indent=2))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"a small run on digits": attacked(small_run(Path(folder)))}, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
