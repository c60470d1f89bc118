"""Distance of a model from one that was retrained without the data to be forgotten.

A retrained model is the accepted baseline of forgetting. It is also one draw of many: two retrained models differ from
each other, so no distance should be expected to be zero.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fupareto.audit.attacks.outputs import MEMBERS
from fupareto.federation.contract import Federation

GAPS = ("asr", "forget_acc", "r_acc")


def distance(
    federation: Federation,
    w: Tensor,
    retrained: Tensor,
    measured: Mapping[str, Any],
    truth: Mapping[str, Any],
    forget: Sequence[str],
) -> dict[str, Any]:
    """Compare a model with the retrained one: signed gaps in accuracy, and outputs on the data that had to go.

    ``divergence`` is the Jensen-Shannon divergence of the two models' outputs in bits, between 0 and 1, with its
    standard error over samples (``divergence_error``), and ``disagreement`` the share of samples that they classify
    differently; both are means over the forget clients.
    """
    gaps = {
        key: measured[key] - truth[key] if measured[key] is not None and truth[key] is not None else None
        for key in GAPS
    }
    ours, _ = federation.predict(w, forget, MEMBERS)
    theirs, _ = federation.predict(retrained, forget, MEMBERS)
    both = [(ours[i].logits.double(), theirs[i].logits.double()) for i in forget if i in ours and i in theirs]
    bits = [divergences(a, b).cpu().numpy() for a, b in both]
    return {
        **gaps,
        "divergence": float(np.mean([own.mean() for own in bits])) if both else None,
        "divergence_error": _error(bits) if both else None,
        "disagreement": float(np.mean([float((a.argmax(1) != b.argmax(1)).double().mean()) for a, b in both]))
        if both
        else None,
        "distance": float((w.double() - retrained.double()).norm()),
    }


def divergence(a: Tensor, b: Tensor) -> float:
    """Return the mean Jensen-Shannon divergence of two models' outputs (samples, classes), in bits."""
    return float(divergences(a, b).mean())


def divergences(a: Tensor, b: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of two models' outputs (samples, classes) on every sample, in bits."""
    p, q = a.softmax(1), b.softmax(1)
    middle = (p + q) / 2
    first, second = (torch.special.xlogy(x, x / middle.clamp_min(1e-300)).sum(1) for x in (p, q))
    bits: Tensor = (first + second) / (2 * math.log(2.0))
    return bits


def _error(clients: Sequence[NDArray[np.float64]]) -> float | None:
    """Return the standard error of the mean over clients; None where a client has a single sample."""
    if any(len(own) < 2 for own in clients):
        return None
    return float(np.sqrt(sum(own.var(ddof=1) / len(own) for own in clients)) / len(clients))
