"""Helpers for the methods that we compare with: a federation that is watched, and histories made by hand."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from fupareto import parameters
from fupareto.federation import SimulatedFederation
from fupareto.federation.contract import Federation
from fupareto.federation.history import History, Plan
from fupareto.federation.questions import Answer, Failure, Question
from fupareto.federation.recording import Recording, WithHistory
from fupareto.methods import FedAvg

from . import blobs

ALL = ("federaser", "fupga", "fedau")
TRAINING = FedAvg(rounds=6, lr=0.5, batch_size=4)
Change = Callable[[str, Question, Answer | Failure], Answer | Failure]


class Spy(WithHistory):
    """Another federation: ``asked`` remembers every question, ``absent`` do not answer, ``change`` alters answers."""

    def __init__(self, inner: Federation, history: History | None = None, change: Change | None = None) -> None:
        super().__init__(inner, history)  # type: ignore[arg-type]
        self.change = change
        self.asked: list[tuple[str, Question]] = []
        self.absent: set[str] = set()

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        for i, answer in self.inner.ask(questions):
            self.asked.append((i, questions[i]))
            if i in self.absent:
                yield i, Failure("absent")
            else:
                yield i, self.change(i, questions[i], answer) if self.change else answer

    def who(self, *kinds: type[Question]) -> set[str]:
        """Return who was asked, by default anything at all."""
        return {i for i, q in self.asked if not kinds or isinstance(q, kinds)}


def clients() -> SimulatedFederation:
    """The four clients of ``blobs``, in a federation of their own."""
    return SimulatedFederation(blobs.model(), blobs.federation().clients, workers=1)


def record(path: Path, heads: tuple[str, ...] = blobs.FORGET, keep: int = 3) -> tuple[History, list[Tensor]]:
    """Train ``blobs`` and keep everything; return the history and the model before every round and at the end."""
    plan = Plan(ALL, blobs.federation().ids, TRAINING.rounds, keep, heads, label_seed=5)
    recording = Recording(clients(), History.create(path, plan, 0))
    state = TRAINING.init(recording, parameters.read(blobs.model()), None)
    models = [state.w]
    while not state.done:
        state = TRAINING.step(recording.at(state.round), state)
        models.append(state.w)
    return recording.kept, models


def by_torch(w: Tensor, x: Tensor, y: Tensor, lr: float, batch_size: int) -> Tensor:
    """Return the model after one epoch of torch's SGD on the linear model of ``line``."""
    module = line()
    parameters.write(module, w)
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    starts = [k for k in range(0, len(y), batch_size) if len(y) - k != 1]  # a last batch of one joins the one before it
    for k, end in zip(starts, [*starts[1:], len(y)], strict=True):
        optimiser.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(module(x[k:end]), y[k:end]))
        optimiser.step()
    return parameters.read(module)


def line() -> torch.nn.Module:
    """A model without hidden layer or dropout: two features, three classes."""
    module = torch.nn.Linear(2, 3)
    parameters.write(module, torch.linspace(-0.5, 0.5, 9))
    return module


def points(seed: int, size: int) -> tuple[Tensor, Tensor]:
    """Samples for ``line``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 2, generator=generator), torch.randint(3, (size,), generator=generator)


def lines(**sizes: int) -> SimulatedFederation:
    """A federation of clients with so many samples each, by name."""
    held = {i: {"train": points(k, n), "test": points(100 + k, 9)} for k, (i, n) in enumerate(sizes.items())}
    return SimulatedFederation(line(), held, workers=1)
