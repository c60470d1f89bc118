"""Utility: accuracy of the retained clients on their own test data."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fupareto.audit.forgetting import count
from fupareto.federation.collected import Evaluation

SPLITS = ("test",)  # what retained clients are asked for


def utility(evaluation: Evaluation, retained: Sequence[str]) -> dict[str, Any]:
    """Return R-Acc: the unweighted mean over retained clients, its population std, and the worst client."""
    accuracy = {i: a for i in retained if (a := evaluation.accuracy(i, "test")) is not None}
    values = list(accuracy.values())
    return {
        "r_acc": float(np.mean(values)) if values else None,
        "r_acc_std": float(np.std(values)) if values else None,
        "r_acc_min": min(values) if values else None,
        "clients": {
            i: {"side": "retained", "asr": None, "accuracy": a, "samples": count(evaluation, i, "test")}
            for i, a in accuracy.items()
        },
    }
