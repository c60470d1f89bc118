"""Outputs of a model on single samples, for membership attacks and distances."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fupareto.audit.attacks.signals import Outputs
from fupareto.federation.collected import Missing
from fupareto.federation.contract import Federation

MEMBERS = ("member", "train")  # a client's data as they were trained on: marked, if it carries a backdoor
NONMEMBERS = ("nonmember", "test")  # its held-out data, marked in the same way


def outputs(
    federation: Federation, w: Tensor, ids: Sequence[str], splits: Sequence[str]
) -> tuple[dict[str, Outputs], Missing]:
    """Ask for outputs on the first of the named splits that a client has."""
    found, missing = federation.predict(w, ids, splits)
    return {
        i: Outputs(p.logits.cpu().numpy().astype(np.float64), p.labels.cpu().numpy().astype(np.int64))
        for i, p in found.items()
    }, missing
