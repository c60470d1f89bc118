"""What is a method? Hyper-parameters that turn a state into the next one by asking a federation."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from torch import Tensor

from fupareto.errors import NotApplicable, UserError
from fupareto.federation.contract import Federation
from fupareto.federation.history import History
from fupareto.federation.recording import history_of
from fupareto.federation.request import Request
from fupareto.randomness import derive

Stage = Literal["initial", "unlearned", "recovered"]


@dataclass(frozen=True)
class State:
    """Everything a method carries from round to round; a checkpoint is a state, and resuming is loading it."""

    w: Tensor
    forget: tuple[str, ...]
    retained: tuple[str, ...]
    seed: int = 0
    round: int = 0  # rounds done
    stage: str = "unlearned"  # the model that the rounds are on the way to
    phase: str = ""  # what the last round did
    done: bool = False
    record: dict[str, Any] = field(default_factory=dict)  # what the last round did, for the run directory

    def stream(self, *names: str) -> int:
        """Return this round's seed of a named random stream."""
        return derive(self.seed, "round", self.round, *names)

    def sampled(self, participation: float) -> tuple[str, ...]:
        """Return which of the retained clients take part in this round: a share of them, at least one, in their order.

        Every client draws a number for the round, and the smallest take part. So a sample depends on the seed, the
        round and who there is, not on their order, and a smaller share is a part of a larger one.
        """
        drawn = sorted(self.retained, key=lambda i: self.stream("participation", i))
        chosen = set(drawn[: sample_size(len(self.retained), participation)])
        return tuple(i for i in self.retained if i in chosen)

    def told(self, sample: Sequence[str]) -> dict[str, list[str]]:
        """Return what a round's record says of a sample: nothing where it is everybody who stays."""
        return {} if len(sample) == len(self.retained) else {"sampled": list(sample)}

    def after(self, phase: str, record: dict[str, Any], **changes: Any) -> Self:
        """Return the state one round later."""
        return dataclasses.replace(self, round=self.round + 1, phase=phase, record=record, **changes)


@dataclass(frozen=True)
class Method(ABC):
    """A frozen dataclass of hyper-parameters: no hidden state, no I/O."""

    name: ClassVar[str]
    state: ClassVar[type[State]] = State
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # name -> options, chosen as "method:preset"
    history: ClassVar[str] = ""  # what must have been recorded in training
    whole_clients: ClassVar[bool] = False  # cannot forget samples or classes
    from_training: ClassVar[tuple[str, ...]] = ()  # options that are the training's unless set

    def __post_init__(self) -> None:
        """Refuse values that do not fit their type: a misspelt choice would silently be another algorithm."""
        hints = get_type_hints(type(self))
        for field_ in dataclasses.fields(self):
            value = getattr(self, field_.name)
            if not _fits(value, hints[field_.name]):
                raise ValueError(f"{field_.name} must be {_words(hints[field_.name])}, not {value!r}")

    @property
    @abstractmethod
    def budget(self) -> int:
        """Return the largest number of rounds, both stages together."""

    @abstractmethod
    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> State:
        """Return the state before the first round; ``request`` is None for training."""

    def sides(self, federation: Federation, request: Request | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the forget set and the retained set; refuse what this method cannot do."""
        if request is None:
            raise ValueError(f"{type(self).__name__} needs a request")
        if self.whole_clients and request.partial:
            raise NotApplicable(
                f"{type(self).__name__} forgets whole clients only: what it needs from training was recorded by "
                "client. Use another method for samples or classes, fupareto for instance"
            )
        return request.sides(federation.ids)

    def recorded(self, federation: Federation) -> History:
        """Return what the server kept of the training, if it kept what this method needs."""
        history = history_of(federation)
        if history is None or self.history not in history.plan.parts:
            raise UserError(
                f"{type(self).__name__} needs a history of the training, and none was recorded for it; record it with: "
                f"fupareto train EXPERIMENT.toml --record {self.history} --out DIRECTORY"
            )
        return history

    def rows(self, forget: int, retained: int) -> int:
        """Return how many vectors of the model's size the server holds at once, beside the model at hand.

        For what a run is said to need before it starts. By default one per client, for methods that look at everybody's
        gradients or models together.
        """
        return forget + retained

    @property
    def local_batch(self) -> int:
        """Return how many samples a client takes at once when it trains; 1 where it does not."""
        return getattr(self, "batch_size", 1)

    @abstractmethod
    def step(self, federation: Federation, state: Any) -> Any:
        """Return the state after one more round; never called on a state that is done."""


def sample_size(clients: int, participation: float) -> int:
    """Return how many clients a share of them is: rounded, a half upwards, and at least one."""
    return max(1, math.floor(participation * clients + 0.5))


def positive(**values: float) -> None:
    """Refuse hyper-parameters that must be above zero."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value}")


def share(**values: float) -> None:
    """Refuse hyper-parameters that must lie above 0 and not above 1."""
    positive(**values)
    for name, value in values.items():
        if value > 1:
            raise ValueError(f"{name} must not be above 1, not {value}")


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_args(hint):  # a union
        return any(_fits(value, h) for h in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_args(hint):
        return " or ".join(_words(h) for h in get_args(hint))
    return {float: "a finite number", int: "a whole number", bool: "true or false", type(None): "left out"}.get(
        hint, str(hint)
    )
