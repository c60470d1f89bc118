"""An attack of your own on a finished run: what if the non-members did not carry the trigger?

    python examples/attack_of_your_own.py RUN...

The audit marks a client's held-out samples as its training samples are marked, so that an attack has to see
membership. This attack leaves them as they are: it tells a triggered sample from an ordinary one, whoever trained on
it. One AUC per forgotten client, for the model before and the one that was kept, as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np

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


if __name__ == "__main__":
    print(json.dumps({path: attacked(Path(path)) for path in sys.argv[1:]}, indent=2))
