"""Signals of a model on single samples, for membership attacks."""

from collections.abc import Sequence

from torch import Tensor

from fupareto.federation.collected import Missing
from fupareto.federation.contract import Federation
from fupareto.tasks.signals import Signals

MEMBERS = ("member", "train")  # a client's data as they were trained on: marked, if it carries a mark
NONMEMBERS = ("nonmember", "test")  # its held-out data, marked in the same way


def outputs(
    federation: Federation, w: Tensor, ids: Sequence[str], splits: Sequence[str]
) -> tuple[dict[str, Signals], Missing]:
    """Ask for signals on the first of the named splits that a client has."""
    found, missing = federation.signals(w, ids, splits)
    return {i: Signals(**{k: v.cpu().numpy() for k, v in vars(answer).items()}) for i, answer in found.items()}, missing
