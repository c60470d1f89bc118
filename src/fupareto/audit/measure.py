"""Measurements of one model against a request."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fupareto.audit import forgetting, utility
from fupareto.federation.collected import Missing
from fupareto.federation.contract import Federation


def measure(
    federation: Federation, w: Tensor, w0: Tensor, forget: Sequence[str], retained: Sequence[str]
) -> tuple[dict[str, Any], Missing]:
    """Measure one model against a request; also say which clients did not answer."""
    asked = {**dict.fromkeys(forget, forgetting.SPLITS), **dict.fromkeys(retained, utility.SPLITS)}
    seen = federation.evaluate_each(w, asked)
    left, right = forgetting.forgetting(seen, forget), utility.utility(seen, retained)
    clients = {**left.pop("clients"), **right.pop("clients")}
    distance = float((w.double() - w0.double()).norm())
    stage = {**left, **right, "mia_auc": None, "distance": distance, "clients": clients}
    return stage, seen.missing
