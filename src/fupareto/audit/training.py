"""How clients train, as far as an audit has to know it: measurements train copies of a model on."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch import Tensor

from fupareto.audit import forgetting
from fupareto.federation.contract import Federation

Watch = Callable[[dict[str, Any]], None]
Progress = Callable[[str, int], AbstractContextManager[Watch | None]]  # of a title and a number of rounds


class Training(Protocol):
    """The settings by which the initial model was trained, FedAvg's for instance."""

    @property
    def lr(self) -> float:
        """Return the rate of the first round."""

    def slowed(self, share: float) -> "Training":
        """Return the same training with everybody, at a constant share of its first rate."""

    def onward(self, federation: Federation, w: Tensor, clients: Sequence[str], seed: int) -> Iterator[Tensor]:
        """Yield the model after each further round of training by ``clients``, from ``w``; without end."""


def no_progress(title: str, rounds: int) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def known(federation: Federation, w: Tensor, forget: Sequence[str], measure: str) -> tuple[float | None, Any]:
    """Return a model's ``measure`` (asr or forget_acc) in the mean over the forget clients, and of each of them.

    Each client's entry has the ``value`` and the number of ``samples`` that it was measured on.
    """
    split, value, samples = (
        ("trigger", "asr", "asr_samples") if measure == "asr" else ("clean|train", "accuracy", "samples")
    )
    found = forgetting.forgetting(federation.evaluate(w, forget, (split,)), forget)
    clients = {
        i: {"value": c[value], "samples": c[samples]} for i, c in found["clients"].items() if c[value] is not None
    }
    mean = found[measure]
    return None if mean is None else float(mean), clients


def measure_of(stage: Any) -> str:
    """Return what says how much a measured model remembers: ASR, or forget accuracy where there is no mark."""
    return "asr" if stage["asr"] is not None else "forget_acc"
