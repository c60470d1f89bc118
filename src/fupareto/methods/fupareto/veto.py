"""Veto of the forget clients after renewal: losses above which no step may raise theirs, without gradients."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from fupareto.federation.collected import Missing, Trial
from fupareto.federation.contract import Federation
from fupareto.tasks.losses import Loss

RELAPSE = 0.01  # share of the way from the renewed model back to w0 that a loss may go
ROUNDING = 1e-6  # by which a loss may exceed that


def ask_goals(
    federation: Federation, w: Tensor, w0: Tensor, losses: Mapping[str, Loss]
) -> tuple[dict[str, float], Missing]:
    """Return the largest loss that each client accepts, and the clients that did not answer.

    A client accepts a hundredth of the way from its loss at ``w`` back to its loss at ``w0``. With none of it, a client
    whose loss has vanished would veto every step.

    Args:
        federation: The clients.
        w: The renewed model.
        w0: The model before renewal.
        losses: Loss of every client to ask.
    """
    missing: Missing = {}
    if not losses:
        return {}, missing
    renewed, before = federation.losses(Trial(w, w - w0, (0.0, 1.0), lacking=tuple(losses)), losses, missing)
    goals = renewed + RELAPSE * np.maximum(before - renewed, 0.0) + ROUNDING
    return {i: float(x) for i, x in zip(losses, goals, strict=True) if np.isfinite(x)}, missing
