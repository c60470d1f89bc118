"""Relearning: how much is back in the mean over a few slow rounds of training on the forgotten data.

A model that merely suppresses what it knows learns it again at once; one that never knew it has to learn it. How many
rounds that takes says little, because at a usual rate it is one or two. So the rate is a hundredth of the training's,
and the measure is the mean of the curve over a fixed number of rounds. The initial model and a retrained one are the
two ends of the scale.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import Tensor

from fupareto.audit.training import Progress, Training, known, no_progress
from fupareto.federation.contract import Federation
from fupareto.randomness import derive

ROUNDS = 20
SHARE = 0.01  # of the training's rate


def relearning(
    federation: Federation,
    models: Mapping[str, Tensor],
    forget: Sequence[str],
    measure: str,
    training: Training,
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Train every model slowly on the forget clients alone, and return the entry ``relearning`` of audit.json.

    A model's ``curve`` starts with the model as it is; ``mean`` is the mean of ``measure`` over the rounds after that.
    """
    slowly = training.slowed(SHARE)
    found = {}
    for stage, w in models.items():
        with progress(f"relearning from the {stage} model", ROUNDS) as watch:
            curve = [known(federation, w, forget, measure)[0]]
            further = slowly.onward(federation, w, forget, derive(seed, "relearning"))
            for number, now in zip(range(1, ROUNDS + 1), further, strict=False):
                curve.append(known(federation, now, forget, measure)[0])
                if watch:
                    watch({"round": number, "said": "relearning"})
        found[stage] = {"mean": _mean(curve[1:]), "curve": curve}
    return {"measure": measure, "rounds": ROUNDS, "lr": slowly.lr, "models": found}


def _mean(curve: Sequence[float | None]) -> float | None:
    """Return the mean, or None where a round was not measured."""
    values = [value for value in curve if value is not None]
    return fmean(values) if values and len(values) == len(curve) else None
