"""How clients train, as far as an audit has to know it: measurements train copies of a model on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch import Tensor

from fupareto.federation.contract import Federation

Watch = Callable[[dict[str, Any]], None]
Progress = Callable[[str, int], AbstractContextManager[Watch | None]]  # of a title and a number of rounds


class Round(Protocol):
    """Outcome of a round of training."""

    @property
    def w(self) -> Tensor:
        """Return the model."""

    @property
    def record(self) -> Mapping[str, Any]:
        """Return the record: ``step`` is None if no client trained, and ``missing`` names those that did not."""


class Training(Protocol):
    """The settings by which the initial model was trained, FedAvg's for instance."""

    @property
    def lr(self) -> float:
        """Return the rate of the first round."""

    def slowed(self, share: float) -> "Training":
        """Return the same training with everybody, at a constant share of its first rate."""

    def onward(self, federation: Federation, w: Tensor, clients: Sequence[str], seed: int) -> Iterator[Round]:
        """Yield the outcome of each further round of training by ``clients``, from ``w``; without end."""


def no_progress(title: str, rounds: int) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def measure_of(stage: Any) -> str:
    """Return what says how much a measured model remembers: ASR, or forget accuracy where there is no mark."""
    return "asr" if stage["asr"] is not None else "forget_acc"
