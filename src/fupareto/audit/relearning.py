"""Relearning: how many rounds of training on the forgotten data bring them back.

A model that merely suppresses what it knows learns it again at once; one that never knew it has to learn it. The
baseline is therefore the same number for a retrained model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fupareto.audit import forgetting
from fupareto.federation.collected import Local
from fupareto.federation.contract import Federation
from fupareto.tasks.losses import Loss

BACK = 0.9  # of the way from what a model without the data knows to what the initial model knew


def goal(known: float, unknown: float) -> float:
    """Return the value from which the forgotten counts as back."""
    return unknown + BACK * (known - unknown) if known > unknown else BACK * known


def relearn(
    federation: Federation,
    w: Tensor,
    forget: Sequence[str],
    measure: str,
    goal: float,
    local: Local,
    limit: int,
) -> dict[str, Any]:
    """Train on the forget clients alone until ``measure`` (asr or forget_acc) is at ``goal``, for ``limit`` rounds.

    ``rounds`` is None when it did not come back, and the curve starts with the model as it is.
    """
    curve = [_known(federation, w, forget, measure)]
    while curve[-1] is not None and curve[-1] < goal and len(curve) <= limit:
        mean = federation.train_mean(w, forget, Loss("ce"), local)
        if mean.w is None:
            break
        w = mean.w
        curve.append(_known(federation, w, forget, measure))
    back = curve[-1] is not None and curve[-1] >= goal
    return {"rounds": len(curve) - 1 if back else None, "curve": curve}


def _known(federation: Federation, w: Tensor, forget: Sequence[str], measure: str) -> float | None:
    found: Mapping[str, Any] = forgetting.forgetting(federation.evaluate(w, forget, forgetting.SPLITS), forget)
    value = found[measure]
    return None if value is None else float(value)
