"""Distance of a model from one that was retrained without the data to be forgotten.

A retrained model is the accepted baseline of forgetting. It is also one draw of many: two retrained models differ from
each other, so no distance should be expected to be zero.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
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

    ``divergence`` is the Jensen-Shannon divergence of the two models' outputs in bits, between 0 and 1, and
    ``disagreement`` the share of samples that they classify differently; both are means over the forget clients.
    """
    gaps = {
        key: measured[key] - truth[key] if measured[key] is not None and truth[key] is not None else None
        for key in GAPS
    }
    ours, _ = federation.predict(w, forget, MEMBERS)
    theirs, _ = federation.predict(retrained, forget, MEMBERS)
    both = [(ours[i].logits.double(), theirs[i].logits.double()) for i in forget if i in ours and i in theirs]
    return {
        **gaps,
        "divergence": float(np.mean([divergence(a, b) for a, b in both])) if both else None,
        "disagreement": float(np.mean([float((a.argmax(1) != b.argmax(1)).double().mean()) for a, b in both]))
        if both
        else None,
        "distance": float((w.double() - retrained.double()).norm()),
    }


def divergence(a: Tensor, b: Tensor) -> float:
    """Return the mean Jensen-Shannon divergence of two models' outputs (samples, classes), in bits."""
    p, q = a.softmax(1), b.softmax(1)
    middle = (p + q) / 2
    bits = [torch.special.xlogy(x, x / middle.clamp_min(1e-300)).sum(1) for x in (p, q)]
    return float((sum(bits) / 2 / np.log(2.0)).mean())
