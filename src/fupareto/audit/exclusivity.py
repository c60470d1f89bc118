"""Exclusivity: each retained client's gain or loss, and which clients every update opposed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fupareto.audit import intervals
from fupareto.audit.intervals import Pair

SAME = 0.005  # a change of up to half a point counts as none


def exclusivity(
    before: Mapping[str, Any], after: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]], forget: Sequence[str]
) -> dict[str, Any]:
    """Compare two measured models client by client; ``rounds`` are the run's lines, with cosines where known.

    ``low`` and ``high`` of a client's change are simultaneous 95 % intervals over all retained clients, so that the
    worst of many may be looked at. They are None where the number of test samples is not known.
    """
    pairs = compared(before, after, "retained")
    level = intervals.simultaneous(len(pairs))
    clients = {i: _changed(pair, level) for i, pair in pairs.items()}
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


def compared(before: Mapping[str, Any], after: Mapping[str, Any], side: str) -> dict[str, Pair]:
    """Return the accuracies of every client of a side that was measured with both models; 0 samples if unknown."""
    first, last = (
        {i: c for i, c in stage["clients"].items() if c["side"] == side and c["accuracy"] is not None}
        for stage in (before, after)
    )
    return {
        i: Pair(old["accuracy"], new["accuracy"], min(old.get("samples") or 0, new.get("samples") or 0))
        for i, old in first.items()
        if (new := last.get(i)) is not None
    }


def _changed(pair: Pair, level: float) -> dict[str, Any]:
    low, high = intervals.change(pair, level) if pair.samples else (None, None)
    return {
        "before": pair.before,
        "after": pair.after,
        "change": pair.after - pair.before,
        "samples": pair.samples or None,
        "low": low,
        "high": high,
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
