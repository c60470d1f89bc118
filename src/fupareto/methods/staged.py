"""Base class of the compared methods: unlearning rounds, then recovery by FedAvg with the retained clients."""

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from fupareto.federation.averaging import Aggregation
from fupareto.federation.collected import Gradients, Local
from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.base import Method, State, decaying, positive
from fupareto.tasks.losses import Loss

CE = Loss("ce")
S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class StagedState(State):
    """State of a method with two stages."""

    w0: Tensor = field(default_factory=lambda: torch.empty(0))  # the model before unlearning


@dataclass(frozen=True)
class Staged(Method):
    """Unlearn for at most ``rounds``, then train the retained clients with FedAvg for ``recovery_rounds``.

    A subclass defines :meth:`unlearn`. Rates decay over both stages, without a reset.
    """

    state: ClassVar[type[State]] = StagedState

    rounds: int = 100
    recovery_rounds: int = 100
    lr: float = 0.01
    recovery_lr: float = 0.01
    decay: float = 0.999  # factor of the rates, per round
    epochs: int = 1  # of local training
    batch_size: int = 200
    aggregation: Aggregation = "mean"  # of the local models in recovery; see FedAvg
    recovery_optimizer: Literal["sgd", "adam", "adamw"] = field(default="sgd", kw_only=True)  # of local training

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(rounds=self.rounds, lr=self.lr, recovery_lr=self.recovery_lr, decay=self.decay)
        positive(epochs=self.epochs, batch_size=self.batch_size)
        if self.recovery_rounds < 0:
            raise ValueError(f"recovery_rounds must not be negative, not {self.recovery_rounds}")
        if self.decay > 1:
            raise ValueError(f"decay must not be above 1, not {self.decay}")
        decaying(self.rounds, self.decay, lr=self.lr)
        if self.recovery_rounds:
            decaying(self.rounds + self.recovery_rounds, self.decay, recovery_lr=self.recovery_lr)

    @property
    def budget(self) -> int:
        """Unlearning and recovery rounds together."""
        return self.rounds + self.recovery_rounds

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> Any:
        """Start unlearning from ``w0``."""
        forget, retained = self.sides(federation, request)
        return self.state(w=w0, forget=forget, retained=retained, seed=seed, w0=w0)  # type: ignore[call-arg]

    def step(self, federation: Federation, state: Any) -> Any:
        """Run one round, and end the stage if it is over."""
        if state.stage == "recovered":
            after = self.recover(federation, state)
            return dataclasses.replace(after, done=after.round - after.started >= self.recovery_rounds)
        after = self.unlearn(federation, state)
        if after.round < self.rounds and not after.record.get("ended", False):
            return after
        if not self.recovery_rounds:
            return dataclasses.replace(after, done=True)
        return dataclasses.replace(after, stage="recovered", started=after.round)

    @abstractmethod
    def unlearn(self, federation: Federation, state: Any) -> Any:
        """Return the state after one round of unlearning; a true value of ``ended`` in its record ends the stage."""

    def recover(self, federation: Federation, state: Any) -> Any:
        """Run one round of FedAvg with the retained clients."""
        local = dataclasses.replace(self.local(state, self.recovery_lr), optimizer=self.recovery_optimizer)
        mean = federation.train_mean(state.w, state.retained, CE, local, self.aggregation)
        return moved(state, "recover", mean.w, {"lr": local.lr, **mean.told})

    def local(self, state: State, rate: float) -> Local:
        """Return the local training of this round, for a base rate."""
        return Local(rate * self.decay**state.round, self.epochs, self.batch_size, state.stream("local"))


def moved(state: S, phase: str, w: Tensor | None, record: dict[str, Any], **changes: Any) -> S:
    """Return the state after one more round; None for ``w`` means that no client answered: the model is unchanged."""
    step = {"step": None, "note": "no usable answer; the model is unchanged"} if w is None else {"step": record["lr"]}
    return state.after(phase, {**step, **record}, w=state.w if w is None else w, **changes)


def stepped(state: S, lr: float, answer: Gradients, direction: Tensor | None, **more: Any) -> S:
    """Return the state after an unlearning step along a direction that was found from the clients' gradients.

    Args:
        state: The state before.
        lr: Length of the step, in directions.
        answer: Losses and gradients of the clients.
        direction: The direction that is subtracted (parameters,); None leaves the model unchanged.
        **more: Further entries of the record.
    """
    record = {
        "lr": lr,
        "losses": dict(zip(answer.ids, answer.losses.tolist(), strict=True)),
        "cosines": cosines(answer, direction),
        "missing": answer.missing,
        **more,
    }
    return moved(state, "unlearn", None if direction is None else state.w - lr * direction, record)


def rows(answer: Gradients, ids: Sequence[str]) -> list[int]:
    """Return the rows of the clients that are in ``ids`` and answered."""
    return [k for k, i in enumerate(answer.ids) if i in ids]


def cosines(answer: Gradients, direction: Tensor | None) -> dict[str, float]:
    """Return the cosine of an update with every client's gradient; below 0 the update raises the client's loss."""
    if direction is None:
        return {}
    to = direction.double()
    values = (torch.nn.functional.cosine_similarity(row.double(), to, 0) for row in answer.gradients)  # one at a time
    return {i: float(value) for i, value in zip(answer.ids, values, strict=True)}
