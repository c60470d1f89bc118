"""Distance of a model from one that was retrained without the data to be forgotten.

A retrained model is the accepted baseline of forgetting. It is also one draw of many: two retrained models differ from
each other, so no distance should be expected to be zero.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fupareto.audit.attacks.outputs import MEMBERS
from fupareto.federation.contract import Federation
from fupareto.federation.questions import Compared

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
    differently; both are computed by the forget clients, and are means over them; ``missing`` are those that did not
    answer.
    """
    gaps = {
        key: measured[key] - truth[key] if measured[key] is not None and truth[key] is not None else None
        for key in GAPS
    }
    compared, missing = federation.compare(w, retrained, forget, MEMBERS)
    found = [compared[i] for i in forget if i in compared]
    return {
        **gaps,
        "divergence": float(np.mean([own.divergence for own in found])) if found else None,
        "divergence_error": _error(found) if found else None,
        "disagreement": float(np.mean([own.disagreement for own in found])) if found else None,
        "distance": float((w.double() - retrained.double()).norm()),
        "missing": sorted(missing),
    }


def _error(clients: Sequence[Compared]) -> float | None:
    """Return the standard error of the mean over clients; None where a client has a single sample."""
    if any(own.samples < 2 for own in clients):
        return None
    return float(np.sqrt(sum(own.variance / own.samples for own in clients)) / len(clients))
