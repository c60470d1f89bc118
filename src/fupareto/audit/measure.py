"""Measurements of one model against a request."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fupareto.audit import forgetting, utility
from fupareto.federation.collected import Evaluation, Missing
from fupareto.federation.contract import Federation

COMMON = ("samples", "right", "loss")  # what every task is measured by


def measure(
    federation: Federation, w: Tensor, w0: Tensor, forget: Sequence[str], retained: Sequence[str]
) -> tuple[dict[str, Any], Missing]:
    """Measure one model against a request; also say which clients did not answer."""
    seen = federation.evaluate_each(w, splits_of(forget, retained))
    left, right = forgetting.forgetting(seen, forget), utility.utility(seen, retained)
    clients = {**left.pop("clients"), **right.pop("clients")}
    distance = float((w.double() - w0.double()).norm())
    stage = {**left, **right, "mia_auc": None, "distance": distance, "clients": clients}
    own = measures(seen, forget, retained)
    return {**stage, **({"measures": own} if own else {})}, seen.missing


def splits_of(forget: Sequence[str], retained: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the splits on which every client measures a model."""
    return {**dict.fromkeys(forget, forgetting.SPLITS), **dict.fromkeys(retained, utility.SPLITS)}


def measures(seen: Evaluation, forget: Sequence[str], retained: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the summary numbers of the task, such as AUC or perplexity; empty for classes, which have none.

    ``retained`` are means over the retained clients on their test data, ``forget`` over the forget clients on their own
    training data, and ``mark`` over the forget clients on inputs that carry the mark. A mean that is not finite, as
    where the number of one client is not, is left out: a mean over the other clients would be another number.
    """
    sides = {
        "retained": (retained, ("test",)),
        "forget": (forget, ("clean", "train")),
        "mark": (forget, ("trigger",)),
    }
    found = {}
    for side, (ids, splits) in sides.items():
        known = [next((seen.counts[i][s] for s in splits if s in seen.counts[i]), {}) for i in ids if i in seen.counts]
        names = [name for name in (known[0] if known else {}) if name not in COMMON]
        with np.errstate(over="ignore", invalid="ignore"):
            means = {name: float(np.mean([c[name] for c in known if name in c])) for name in names}
        if finite := {name: mean for name, mean in means.items() if np.isfinite(mean)}:
            found[side] = finite
    return found
