"""Relearning: how much is back in the mean over a few slow rounds of training on the forgotten data.

A model that merely suppresses what it knows learns it again at once; one that never knew it has to learn it. How many
rounds that takes says little, because at a usual rate it is one or two. So the rate is a hundredth of the training's,
and the measure is the mean of the curve over a fixed number of rounds. The initial model and a retrained one are the
two ends of the scale.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from torch import Tensor

from fupareto.audit.further import Curve, Further
from fupareto.audit.training import Watch

ROUNDS = 20
SHARE = 0.01  # of the training's rate


def relearning(further: Further, models: Mapping[str, Tensor]) -> dict[str, Any]:
    """Train every model slowly on the forget clients alone, and return the entry ``relearning`` of audit.json.

    A model's ``curve`` starts with the model as it is; ``mean`` is the mean of the measure over the rounds after that;
    ``missing`` are the forget clients that did not train in all rounds, or were not measured after all of them.
    """
    slowly = further.slowed(SHARE)
    title, trace = "relearning from the {} model", partial(_curve, slowly)
    found = {s: slowly.curve("relearning", title.format(s), ROUNDS, w, partial(trace, w)) for s, w in models.items()}
    return {"measure": slowly.measure, "rounds": ROUNDS, "lr": slowly.training.lr, "models": found}


def _curve(slowly: Further, w: Tensor, watch: Watch | None) -> Curve:
    """Train one model slowly."""
    forget, _ = slowly.sides
    value, first = slowly.known(w)
    curve, absent = [value], set[str]()
    for number, trained in zip(range(1, ROUNDS + 1), slowly.rounds(w, forget, "relearning"), strict=False):
        value, now = slowly.after(trained)
        curve.append(value)
        absent |= set(trained.record["missing"]) | (set(first) - set(now))
        if watch:
            watch({"round": number, "said": "relearning"})
    return {"mean": _mean(curve[1:]), "curve": curve, "missing": sorted(absent)}


def _mean(curve: Sequence[float | None]) -> float | None:
    """Return the mean, or None where a round was not measured."""
    values = [value for value in curve if value is not None]
    return fmean(values) if values and len(values) == len(curve) else None
