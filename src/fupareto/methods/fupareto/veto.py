"""Veto of the forget clients after renewal: losses that no step may raise, without gradients."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fupareto.federation.collected import Missing, Trial
from fupareto.federation.contract import Federation
from fupareto.tasks.losses import Loss

ROUNDING = 1e-6  # by which a loss may exceed what it was


def ask_goals(federation: Federation, w: Tensor, losses: Mapping[str, Loss]) -> tuple[dict[str, float], Missing]:
    """Return the largest loss that each client accepts, its loss at ``w``, and the clients that did not answer."""
    missing: Missing = {}
    if not losses:
        return {}, missing
    (values,) = federation.losses(Trial(w, torch.zeros_like(w), (0.0,)), losses, missing)
    return {i: float(x) + ROUNDING for i, x in zip(losses, values, strict=True) if np.isfinite(x)}, missing
