"""Fine-tuning: FedAvg goes on from w0 with the retained clients, and nothing else is done.

The control of every comparison: what a method removes has to be more than what ordinary training forgets by itself.

Storage: nothing. Communication: one model down and one up per retained client and round.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.base import State
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.local import OPTIMIZER


@dataclass(frozen=True)
class FineTune(FedAvg):
    """Train on without the forget clients, as the training did."""

    name: ClassVar[str] = "finetune"
    from_training: ClassVar[tuple[str, ...]] = (
        "lr", "decay", "epochs", "batch_size", "participation", "aggregation", *OPTIMIZER,
    )  # fmt: skip

    rounds: int = 50

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> State:
        """Start from ``w0`` with the retained clients."""
        self.sides(federation, request)
        return super().init(federation, w0, request, seed)
