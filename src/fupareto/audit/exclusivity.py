"""Did forgetting touch those who stay? Each retained client's gain or loss, and whom every update opposed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SAME = 0.005  # a change of up to half a point is no change: a sample or two of a small test set


def exclusivity(
    before: Mapping[str, Any], after: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]], forget: Sequence[str]
) -> dict[str, Any]:
    """Compare two measured models client by client; ``rounds`` are the run's lines, with cosines where known."""
    clients = {
        i: {"before": old, "after": new, "change": new - old}
        for i, old in _accuracies(before).items()
        if (new := _accuracies(after).get(i)) is not None
    }
    changes = {i: c["change"] for i, c in clients.items()}
    worst = min(changes, key=lambda i: changes[i], default=None)
    return {
        "clients": clients,
        "gained": sum(c > SAME for c in changes.values()),
        "lost": sum(c < -SAME for c in changes.values()),
        "same": sum(abs(c) <= SAME for c in changes.values()),
        "worst": None if worst is None else {"client": worst, "change": changes[worst]},
        "conflicts": [
            {"round": r["round"], "phase": r["phase"], **_sides(r["cosines"], forget)}
            for r in rounds
            if r.get("cosines")
        ],
    }


def _accuracies(stage: Mapping[str, Any]) -> dict[str, float]:
    return {
        i: c["accuracy"] for i, c in stage["clients"].items() if c["side"] == "retained" and c["accuracy"] is not None
    }


def _sides(cosines: Mapping[str, float], forget: Sequence[str]) -> dict[str, Any]:
    """Return the statistics of an update's cosines with the gradients of both sides; below 0 it opposes a client."""
    found: dict[str, Any] = {}
    for side, own in (("forget", True), ("retained", False)):
        values = [c for i, c in cosines.items() if (i in forget) == own]
        found[side] = (
            {"min": min(values), "mean": float(np.mean(values)), "negative": sum(c < -1e-6 for c in values)}
            if values
            else None
        )
    return found
