"""Retraining from scratch: a newly initialised model, trained by the retained clients. The baseline of all methods.

Faithful by definition; the number of rounds is a choice. In the paper's Table I its accuracy is well below that of the
initial model, so it had far fewer rounds than the initial training; the default is the budget of the other methods,
both stages together.

Storage: nothing. Communication: one model down and one up per retained client and round.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.base import State
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.local import OPTIMIZER
from fupareto.randomness import derive


@dataclass(frozen=True)
class Retrain(FedAvg):
    """Train a newly initialised model with the retained clients only."""

    name: ClassVar[str] = "retrain"
    from_training: ClassVar[tuple[str, ...]] = (
        "lr", "decay", "epochs", "batch_size", "participation", "aggregation", *OPTIMIZER,
    )  # fmt: skip

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> State:
        """Start from a new initialisation, drawn from its own random stream."""
        self.sides(federation, request)
        state = super().init(federation, w0, request, seed)
        return dataclasses.replace(state, w=federation.fresh(derive(seed, "retrain")))
