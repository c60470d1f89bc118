"""Options of local training that methods share: the optimiser and its settings."""

from dataclasses import dataclass, field
from typing import Any, Literal

from fupareto.federation.collected import Local
from fupareto.methods.base import Method

OPTIMIZER = ("optimizer", "momentum", "weight_decay", "clip", "shuffle")


@dataclass(frozen=True)
class LocalTraining(Method):
    """A method whose clients train locally. The state of an optimiser starts anew in every round, at every client."""

    optimizer: Literal["sgd", "adam", "adamw"] = field(default="sgd", kw_only=True)  # of local training
    momentum: float = field(default=0.0, kw_only=True)  # of SGD
    weight_decay: float = field(default=0.0, kw_only=True)
    clip: float | None = field(default=None, kw_only=True)  # largest norm of a batch's gradient; None: any
    shuffle: bool = field(default=False, kw_only=True)  # a new random order of the samples for every epoch

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie between 0 and 1, not {self.momentum}")
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum is an option of sgd; {self.optimizer} has its own")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, not {self.weight_decay}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0, not {self.clip}")

    def locally(self, lr: float, epochs: int, batch_size: int, seed: int) -> Local:
        """Return the local training of a round, with this method's optimiser."""
        how: dict[str, Any] = {name: getattr(self, name) for name in OPTIMIZER}
        return Local(lr, epochs, batch_size, seed, **how)
