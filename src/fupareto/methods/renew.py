"""Renewal (ours): mix w0 with a fresh model, then train it with the retained clients.

Methods that follow gradients from w0 stay close to it, and further training with the retained clients alone brings
the forgotten back. Shrinking the weights towards a new initialisation removes what many weights know in concert (a
backdoor, single samples) and leaves a start from which the retained clients are soon where they were. Every tensor of
the model becomes

    (1 - a) w0 + a · fresh,   with a such that ||(1 - a) w0|| = remains · ||a · fresh||.

So how much is renewed depends on how far training has taken a tensor from the length that it starts with, not on the
data set: with the default 0.4, a is between 0.74 and 0.78 for a CNN of which half is as it was initialised, 0.83 for a
LeNet-5, and 0.91 for a small network trained for long. With more left, relearning the forgotten is faster than from a
retrained model; with less, the rounds do not always suffice. With nothing left (0) it is a retraining of fewer rounds,
which forgets exactly.

Then the retained clients train as in the training of w0, for a share of its rounds, with momentum on the server (Hsu et
al., arXiv 1909.06335): v ← μ v + (w - mean), w ← w - v. Momentum costs the clients nothing and makes the rounds worth
more: without it, a model of a quarter of the rounds is visibly less trained than a retrained one. μ grows from 0 to
``momentum`` in the middle of the rounds and falls back to 0 at their end. The first steps from a young model are large,
and carried on they lead to outputs that no retrained model has; with momentum up to the end, the model would still be
swinging about where it is going. The last rounds are ordinary rounds at the training's rate, so further training at
this rate goes on from where they end; a model whose rate had fallen to zero is shaken by the first further round, and
sometimes ruined. What is kept is the mean of the models of the last rounds, a share ``averaged`` of them (Izmailov et
al., arXiv 1803.05407): where clients' data differ much, a round's model is good for some clients and bad for others,
and the mean is good for all. Buffers, such as running statistics, are averaged without momentum.

A training that is slow to start may need longer. If the retained clients' mean accuracy on held-out data is more than
two points below that of w0, as much as the audit allows, as many ordinary rounds follow as were averaged, and the mean
of their models is kept instead. A model of which nothing is left is not compared with w0: even its number of rounds
must not depend on what is forgotten.

A young model can diverge at a rate that suits an old one; if no client's model can be used, training starts again from
the renewed model at half the rate, unless that was the last round.

Storage: w0, v and the mean. Communication: one model down and one up per retained client and round, and two models
down to compare them at the end. The forget clients are not needed, so requests of clients that are gone can be
answered too.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, ClassVar

import torch
from torch import Tensor

from fupareto.federation.collected import Missing
from fupareto.federation.contract import Federation
from fupareto.federation.questions import diverged
from fupareto.federation.request import Request
from fupareto.methods.base import Method, State, share
from fupareto.methods.fedavg import FedAvg
from fupareto.randomness import derive

LOST = 0.02  # mean held-out accuracy that the retained clients may lose without further rounds


@dataclass(frozen=True)
class RenewState(State):
    """State of renewal."""

    w0: Tensor = field(default_factory=lambda: torch.empty(0))  # the model before renewal
    velocity: Tensor = field(default_factory=lambda: torch.empty(0))  # momentum; empty before the first round
    mean: Tensor = field(default_factory=lambda: torch.empty(0))  # of the last rounds' models; empty before them
    counted: int = 0  # models in the mean
    rate: float = 0.0  # base rate, halved when training diverges
    further: int = 0  # rounds that were added because the retained clients had lost accuracy


@dataclass(frozen=True)
class Renew(Method):
    """Renew the model and train it with the retained clients."""

    name: ClassVar[str] = "renew"
    state: ClassVar[type[State]] = RenewState
    from_training: ClassVar[tuple[str, ...]] = ("training",)

    rounds_share: float = 0.25  # share of the training's rounds
    remains: float = 0.4  # length of what is left of a tensor, over that of its fresh part; 0: a fresh model
    momentum: float = 0.9  # on the server, in the middle of the rounds; it grows from 0 and falls back to 0
    averaged: float = 0.3  # share of the rounds, the last ones, whose models are averaged; 0: the last model is kept
    training: FedAvg | None = None  # the training that made w0; None: FedAvg()

    def __post_init__(self) -> None:
        super().__post_init__()
        share(rounds_share=self.rounds_share)
        if self.remains < 0:
            raise ValueError(f"remains must not be negative, not {self.remains}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, not {self.momentum}")
        if not 0 <= self.averaged <= 1:
            raise ValueError(f"averaged must lie between 0 and 1, not {self.averaged}")

    @property
    def trained(self) -> FedAvg:
        """How the retained clients train."""
        return self.training or FedAvg()

    @property
    def planned(self) -> int:
        """The share of the training's rounds."""
        return max(1, math.ceil(self.rounds_share * self.trained.rounds - 1e-9))  # .07 of 100 rounds are 7, not 8

    @property
    def window(self) -> int:
        """The last rounds, whose models are averaged; as many may follow."""
        return self.planned - math.floor((1 - self.averaged) * self.planned + 1e-9)

    @property
    def budget(self) -> int:
        """Rounds at most."""
        return self.planned + (self.window if self.remains else 0)

    @property
    def expected(self) -> int:
        """The planned rounds."""
        return self.planned

    def over(self, state: RenewState) -> bool:
        """Return whether renewal has had its rounds."""
        return state.round >= self.planned + state.further

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> RenewState:
        """Start from ``w0``; the first round renews it."""
        forget, retained = self.sides(federation, request)
        return RenewState(w=w0, forget=forget, retained=retained, seed=seed, w0=w0, rate=self.trained.lr)

    def rows(self, forget: int, retained: int) -> int:
        """Count w0, the momentum and the mean, each twice while it is replaced, and what the training holds."""
        return 5 + self.trained.rows(forget, retained)

    @property
    def local_batch(self) -> int:
        """Batch size of the training."""
        return self.trained.batch_size

    def step(self, federation: Federation, state: Any) -> Any:
        """Run one round of the training from the renewed model, and add momentum.

        The state is that of any method that renews, a subclass of RenewState; it is returned with the same class.
        """
        if not len(state.velocity):
            state = self._renewed(federation, state)
        training = dataclasses.replace(self.trained, lr=state.rate)
        after: Any = training.step(federation, state)
        after = dataclasses.replace(after, phase="renew", done=self.over(after))
        if after.record["step"] is not None:
            velocity = self.momentum_in(state.round, state.started) * state.velocity + (state.w - after.w)
            w = torch.cat([(state.w - velocity)[: federation.layout.trainable], after.w[federation.layout.trainable :]])
            after = self._averaged(dataclasses.replace(after, w=w, velocity=velocity))
        elif diverged(after.record["missing"]) and not after.done and not state.further:
            again = self._renewed(federation, after)
            return dataclasses.replace(again, rate=state.rate / 2, started=after.round)
        return self._ended(federation, after) if after.done else after

    def momentum_in(self, round_: int, started: int = 0) -> float:
        """Return the momentum of a round: it grows to the middle of the planned rounds, and ends with 0."""
        return self.momentum * 2 / self.planned * max(0, min(round_ - started, self.planned - 1 - round_))

    def _averaged(self, state: Any) -> Any:
        """Return the state after a round that trained, with its model in the mean of the last ones."""
        if state.round <= self.planned + state.further - self.window:
            return state
        mean = state.mean + (state.w - state.mean) / (state.counted + 1) if state.counted else state.w
        return dataclasses.replace(state, mean=mean, counted=state.counted + 1)

    def _ended(self, federation: Federation, state: Any) -> Any:
        """Return the state after the last round with the mean as its model, or with further rounds to go.

        The mean is kept until a further round has trained, in case none does.
        """
        if not len(state.mean):
            return state
        if self.remains and not state.further:
            models, missing = (state.w0, state.mean), dict(state.record["missing"])
            accuracy = held_out(federation, state.retained, models, missing)
            state = dataclasses.replace(state, record={**state.record, "missing": missing, "held_out": accuracy})
            if accuracy and accuracy[1] < accuracy[0] - LOST:
                record = {**state.record, "note": f"the retained clients lost accuracy; rounds added: {self.window}"}
                added = {"further": self.window, "started": state.round, "counted": 0, "done": False}
                return dataclasses.replace(state, record=record, **added)
        return dataclasses.replace(state, w=state.mean)

    def _renewed(self, federation: Federation, state: Any) -> Any:
        """Return the state with ``w0`` mixed with a fresh model, the same one whenever it is asked for."""
        fresh, layout = federation.fresh(derive(state.seed, "renew")), federation.layout
        pairs = zip(layout.named(state.w0).items(), layout.named(fresh).values(), strict=True)
        w = layout.flat({name: mixed(tensor, new, self.remains) for (name, tensor), new in pairs})
        return dataclasses.replace(state, w=w, velocity=torch.zeros_like(w), mean=torch.empty(0), counted=0)


def mixed(old: Tensor, fresh: Tensor, remains: float) -> Tensor:
    """Return (1 - a) old + a · fresh with ||(1 - a) old|| = remains · ||a · fresh||; fresh where either is zero."""
    length = float(old.norm())
    if length == 0.0 or remains == 0.0:
        return fresh
    a = length / (length + remains * float(fresh.norm()))
    return (1 - a) * old + a * fresh


def held_out(federation: Federation, clients: Sequence[str], models: Sequence[Tensor], missing: Missing) -> list[float]:
    """Return each model's mean accuracy on the test data of the clients that measured all of them; none if none did.

    Args:
        federation: The clients.
        clients: Clients to ask.
        models: The models.
        missing: Filled with the clients that do not answer, with the reason.
    """
    found = [federation.evaluate(w, clients, ("test",)) for w in models]
    for seen in found:
        missing.update(seen.missing)
    rows = [[seen.accuracy(i, "test") for seen in found] for i in clients]
    known = [[value for value in row if value is not None] for row in rows]
    complete = [row for row in known if len(row) == len(models)]
    return [fmean(column) for column in zip(*complete, strict=True)]
