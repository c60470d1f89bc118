"""Base classes of methods: hyper-parameters with a step function, and the state between rounds."""

import dataclasses
import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from torch import Tensor

from fupareto.errors import NotApplicable, UserError
from fupareto.federation.contract import Federation
from fupareto.federation.history import PARTS, History
from fupareto.federation.recording import history_of
from fupareto.federation.request import Request
from fupareto.randomness import derive
from fupareto.vocabulary import LARGEST_SETTING

SMALLEST_RATE = -30  # logarithm to base 10 of the smallest rate; float32 ends at -38
Stage = Literal["initial", "unlearned", "recovered"]


@dataclass(frozen=True)
class State:
    """Everything that a method carries from round to round. A checkpoint is a saved state.

    Attributes:
        w: The model, a flat vector (parameters,).
        forget: Ids of the forget clients.
        retained: Ids of the retained clients.
        seed: Seed of all random streams of the run.
        round: Number of finished rounds.
        stage: Stage whose model the next round works on: initial, unlearned or recovered.
        phase: What the last round did, in a word.
        done: Whether the method has finished.
        record: Details of the last round, for the run directory.
        started: Number of finished rounds when the current part of the method began: renewal, improvement, recovery.
    """

    w: Tensor
    forget: tuple[str, ...]
    retained: tuple[str, ...]
    seed: int = 0
    round: int = 0
    stage: str = "unlearned"
    phase: str = ""
    done: bool = False
    record: dict[str, Any] = field(default_factory=dict)
    started: int = 0

    def stream(self, *names: str) -> int:
        """Return the seed of a named random stream for this round."""
        return derive(self.seed, "round", self.round, *names)

    def sampled(self, participation: float) -> tuple[str, ...]:
        """Return the retained clients that take part in this round: a share of them, at least one, in their order.

        Every client has a random number for the round, and those with the smallest numbers take part. So the sample
        depends on the seed, the round and the set of clients, not on their order, and the sample of a smaller share is
        a subset of that of a larger share.
        """
        drawn = sorted(self.retained, key=lambda i: self.stream("participation", i))
        chosen = set(drawn[: sample_size(len(self.retained), participation)])
        return tuple(i for i in self.retained if i in chosen)

    def told(self, sample: Sequence[str]) -> dict[str, list[str]]:
        """Return the entry of a sample for a round's record; empty if all retained clients are in the sample."""
        return {} if len(sample) == len(self.retained) else {"sampled": list(sample)}

    def after(self, phase: str, record: dict[str, Any], **changes: Any) -> Self:
        """Return the state after one more round, with other changes."""
        return dataclasses.replace(self, round=self.round + 1, phase=phase, record=record, **changes)


@dataclass(frozen=True)
class Method(ABC):
    """Base class of methods: a frozen dataclass of hyper-parameters, without hidden state or I/O.

    A subclass defines :attr:`name`, :attr:`budget`, :meth:`init` and :meth:`step`; its fields are its options.

    Attributes:
        name: Name on the command line and in run directories.
        state: Class of the method's states.
        presets: Options by name of the preset, chosen as ``method:preset``.
        history: History that must have been recorded during training; empty if none is needed.
        whole_clients: Whether the method can forget only whole clients, not samples or classes. It cannot follow a
            request for samples or classes either: its history holds what that one forgot.
        from_training: Options that default to those of the training.
        tasks: Names of the tasks that the method can serve; empty for all.
    """

    name: ClassVar[str]
    state: ClassVar[type[State]] = State
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    history: ClassVar[str] = ""
    whole_clients: ClassVar[bool] = False
    from_training: ClassVar[tuple[str, ...]] = ()
    tasks: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for values that do not match their type, such as a misspelt choice, or are out of range."""
        hints = get_type_hints(type(self))
        for field_ in dataclasses.fields(self):
            value = getattr(self, field_.name)
            if not _fits(value, hints[field_.name]):
                raise ValueError(f"{field_.name} must be {_words(hints[field_.name])}, not {reprlib.repr(value)}")
            if isinstance(value, int | float) and abs(value) > LARGEST_SETTING:
                raise ValueError(f"{field_.name} must not be above {LARGEST_SETTING:.0e}, not {reprlib.repr(value)}")

    @property
    @abstractmethod
    def budget(self) -> int:
        """Largest number of rounds, all stages together."""

    @property
    def expected(self) -> int:
        """Number of rounds to tell a user, without those that are added only where they are needed."""
        return self.budget

    @abstractmethod
    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> State:
        """Return the state before the first round.

        Args:
            federation: The clients.
            w0: The model to start from, a flat vector (parameters,).
            request: What to forget; None for training.
            seed: Seed of all random streams of the run.
        """

    def applicable(self, federation: Federation) -> None:
        """Refuse a task that the method cannot serve."""
        if self.tasks and federation.task.label not in self.tasks:
            raise NotApplicable(
                f"{type(self).__name__} needs the task {' or '.join(self.tasks)}, not {federation.task.label}; use "
                "another method, fupareto for instance"
            )

    def sides(self, federation: Federation, request: Request | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the ids of the forget clients and of the retained clients.

        Raises:
            NotApplicable: If this method cannot handle the request.
        """
        if request is None:
            raise ValueError(f"{type(self).__name__} needs a request")
        self.applicable(federation)
        if self.whole_clients and request.divides:
            raise NotApplicable(
                f"{type(self).__name__} forgets whole clients only: its training history is recorded by client, with "
                "all data of the client. Use another method for samples or classes, and for every request after one "
                "for them, fupareto for instance"
            )
        return request.sides(federation.ids)

    def recorded(self, federation: Federation) -> History:
        """Return the history of the training.

        Raises:
            UserError: If the history that this method needs was not recorded, or an earlier run has outdated it.
        """
        history = history_of(federation)
        if history is not None and self.history in set(PARTS) - set(history.only):
            raise NotApplicable(
                f"{type(self).__name__} needs the final model of the recorded training, which a later run has changed; "
                "forget the clients together in one request, or use another method, fupareto for instance"
            )
        if history is None or self.history not in history.plan.parts:
            raise UserError(
                f"{type(self).__name__} needs a history of the training, and none was recorded; record it with: "
                f"fupareto train EXPERIMENT.toml --record {self.history} --out DIRECTORY"
            )
        return history

    def rows(self, forget: int, retained: int) -> int:
        """Return the number of vectors of the model's size that the server holds at once, besides the current model.

        Used to estimate the memory of a run before it starts. The default is one per client, for methods that hold the
        gradients or models of all clients together.

        Args:
            forget: Number of forget clients.
            retained: Number of retained clients.
        """
        return forget + retained

    @property
    def local_batch(self) -> int:
        """Batch size of local training; 1 if clients do not train."""
        return getattr(self, "batch_size", 1)

    def stored(self, state: Any) -> Any:
        """Return the state as a checkpoint holds it: without gradients of the forget clients, which never touch a disk.

        Args:
            state: A state.
        """
        return state

    def restored(self, federation: Federation, state: Any, unlearned: Tensor | None) -> tuple[Any, dict[str, str]]:
        """Return a state from a checkpoint with everything that :meth:`stored` left out, and the missing clients.

        Args:
            federation: The clients, which are asked again.
            state: State of the checkpoint.
            unlearned: Last model of the stage ``unlearned``; None before the stage ended.
        """
        return state, {}

    @abstractmethod
    def step(self, federation: Federation, state: Any) -> Any:
        """Return the state after one more round.

        Args:
            federation: The clients.
            state: A state that is not done.
        """


def sample_size(clients: int, participation: float) -> int:
    """Return the number of clients in a sample: ``participation * clients`` rounded half up, at least 1."""
    return max(1, math.floor(participation * clients + 0.5))


def positive(**values: float) -> None:
    """Raise ValueError for hyper-parameters that are not above 0."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value}")


def share(**values: float) -> None:
    """Raise ValueError for hyper-parameters that are not above 0 and at most 1."""
    positive(**values)
    for name, value in values.items():
        if value > 1:
            raise ValueError(f"{name} must not be above 1, not {value}")


def decaying(rounds: int, decay: float, **rates: float) -> None:
    """Raise ValueError for rates that decay to less than float32 can hold: such rounds would change nothing."""
    for name, rate in rates.items():
        last = math.log10(rate) + (rounds - 1) * math.log10(decay)
        if last < SMALLEST_RATE:
            raise ValueError(
                f"{name} = {rate:g} falls to 10^{last:.0f} in {rounds:,} rounds with decay = {decay:g}, which "
                "changes no model; use a decay nearer to 1, or fewer rounds"
            )


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_args(hint):  # a union
        return any(_fits(value, h) for h in get_args(hint))
    if hint is float:
        return type(value) is int or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_args(hint):
        return " or ".join(_words(h) for h in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Method):
        return f"a table of {hint.__name__}'s options"
    return {float: "a finite number", int: "a whole number", bool: "true or false", type(None): "left out"}.get(
        hint, str(hint)
    )
