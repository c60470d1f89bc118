"""Loss barrier between the initial model and another one: why forgetting comes back, or does not.

A model that is joined to the initial one by a straight line of low loss lies in the same valley: gradients of the
retained clients have no reason to keep it where it is, and what it suppresses can return. A ridge between the two keeps
them apart (linear mode connectivity: Frankle et al., ICML 2020; as a predictor of unlearning that does not last: arXiv
2505.22310).

    barrier = max over t of  loss((1 - t) initial + t model) - ((1 - t) loss(initial) + t loss(model))
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from fupareto.federation.contract import Federation

POINTS = 11  # on the line, with both ends


def barriers(
    federation: Federation, initial: Tensor, models: Mapping[str, Tensor], retained: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the entry ``barrier`` of audit.json: losses on the line from the initial model to each other one.

    Args:
        federation: The clients.
        initial: The initial model.
        models: The other models, by stage.
        retained: The retained clients, whose mean loss on their training data is taken.

    Returns:
        By stage the ``losses`` at evenly spaced points of the line, and the ``height`` of the barrier; None where a
        loss was not measured.
    """
    return {stage: _barrier(federation, initial, w, retained) for stage, w in models.items()}


def _barrier(federation: Federation, initial: Tensor, w: Tensor, retained: Sequence[str]) -> dict[str, Any]:
    shares = np.linspace(0.0, 1.0, POINTS)
    losses = [_loss(federation, initial + float(t) * (w - initial), retained) for t in shares]
    return {"losses": losses, "height": height(losses)}


def _loss(federation: Federation, w: Tensor, retained: Sequence[str]) -> float | None:
    """Return the mean loss of the clients that answer; None if none does or the model has diverged."""
    found = federation.evaluate(w, retained, ("train",))
    values = [counts["train"]["loss"] for counts in found.counts.values() if "train" in counts]
    mean = fmean(values) if values else math.nan
    return mean if math.isfinite(mean) else None


def height(losses: Sequence[float | None]) -> float | None:
    """Return how far the losses rise above the straight line between the first and the last of them.

    >>> height([0.0, 3.0, 2.0])
    2.0
    """
    if any(loss is None for loss in losses):
        return None
    values = np.array(losses, dtype=np.float64)
    return float((values - np.linspace(values[0], values[-1], len(values))).max())
