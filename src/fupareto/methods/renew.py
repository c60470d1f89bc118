"""Renewal (ours): mix w0 with a fresh model, then train it with the retained clients.

Methods that follow gradients from w0 stay close to it, and further training with the retained clients alone brings
the forgotten back. Shrinking the weights towards a new initialisation removes what many weights know in concert (a
backdoor, single samples) and leaves a start from which the retained clients are soon where they were. Every tensor of
the model becomes

    (1 - a) w0 + a · fresh,   with a such that ||(1 - a) w0|| = remains · ||a · fresh||.

So how much is renewed depends on how far training has taken a tensor from the length that it starts with, not on the
data set: with the default 0.6, a is between 0.65 and 0.7 for a CNN of which half is as it was initialised, 0.76 for a
LeNet-5, and 0.87 for a small network trained for long. With more left, relearning the forgotten is faster than from a
retrained model; with less, the rounds do not suffice.

Training is FedAvg at the training's settings. It ends when the retained clients' mean loss on their training data is
what it was at w0, or after a share of the training's rounds: a model that has memorised its data has a loss that there
is no need to reach again. A young model can diverge at a rate that suits an old one; if no client's model can be used,
training starts again from the renewed model at half the rate.

Storage: w0. Communication: one model down and one up per retained client and round, and one more down for the
losses. The forget clients are not needed, so requests of clients that are gone can be answered too.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fupareto.federation.collected import Missing
from fupareto.federation.contract import Federation
from fupareto.federation.questions import diverged
from fupareto.federation.request import Request
from fupareto.methods.base import State, positive, share
from fupareto.methods.local import OPTIMIZER, LocalTraining
from fupareto.randomness import derive
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class RenewState(State):
    """Where renewal started, the retained clients' losses there, and the base rate."""

    w0: Tensor = field(default_factory=lambda: torch.empty(0))
    known: dict[str, float] = field(default_factory=dict)  # retained client -> loss on its training data at w0
    rate: float = 0.0  # halved when training diverges


@dataclass(frozen=True)
class Renew(LocalTraining):
    """Renew the model and train it with the retained clients."""

    name: ClassVar[str] = "renew"
    state: ClassVar[type[State]] = RenewState
    from_training: ClassVar[tuple[str, ...]] = (
        "training_rounds", "lr", "decay", "epochs", "batch_size", "participation", *OPTIMIZER,
    )  # fmt: skip

    remains: float = 0.6  # length of what is left of a tensor, over that of its fresh part
    training_rounds: int = 200  # of the training that made w0
    rounds_share: float = 0.2  # share of them that renewal takes at most
    lr: float = 0.1
    decay: float = 0.999  # of the rate, per round
    epochs: int = 1
    batch_size: int = 200
    participation: float = 1.0  # share of the retained clients that train in a round

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(training_rounds=self.training_rounds, lr=self.lr, epochs=self.epochs, batch_size=self.batch_size)
        positive(remains=self.remains)
        share(rounds_share=self.rounds_share, decay=self.decay, participation=self.participation)

    @property
    def budget(self) -> int:
        """Return the share of the training's rounds."""
        return math.ceil(self.rounds_share * self.training_rounds)

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> RenewState:
        """Start from ``w0``; the first round renews it."""
        forget, retained = self.sides(federation, request)
        return RenewState(w=w0, forget=forget, retained=retained, seed=seed, w0=w0, rate=self.lr)

    def rows(self, forget: int, retained: int) -> int:
        """Hold w0; the mean is a running one."""
        return 1

    def step(self, federation: Federation, state: RenewState) -> RenewState:
        """One round of FedAvg from the renewed model; ends when the retained clients' losses are back at w0's.

        A client whose loss at w0 is missing does not count.
        """
        missing: Missing = {}
        if state.round == 0:
            known = training_losses(federation, state.w0, state.retained, missing)
            state = dataclasses.replace(state, w=self.renewed(federation, state), known=known)
        sample = state.sampled(self.participation)
        lr = state.rate * self.decay**state.round
        mean = federation.train_mean(
            state.w, sample, Loss("ce"), self.locally(lr, self.epochs, self.batch_size, state.stream("train"))
        )
        missing |= mean.missing
        record: dict[str, Any] = {
            "lr": lr,
            "step": None if mean.w is None else 1.0,
            "missing": missing,
            **state.told(sample),
        }
        ended = state.round + 1 >= self.budget
        if mean.w is None:
            ruined = diverged(mean.missing)
            w, rate = (self.renewed(federation, state), state.rate / 2) if ruined else (state.w, state.rate)
            return state.after("renew", record, w=w, rate=rate, done=ended)
        losses = training_losses(federation, mean.w, [i for i in sample if i in state.known], missing)
        record["losses"] = losses
        back = bool(losses) and sum(losses.values()) <= sum(state.known[i] for i in losses)
        return state.after("renew", record, w=mean.w, done=ended or back)

    def renewed(self, federation: Federation, state: RenewState) -> Tensor:
        """Return ``w0`` mixed with a fresh model, the same one whenever it is asked for."""
        old, fresh = state.w0, federation.fresh(derive(state.seed, "renew"))
        layout = federation.layout
        pairs = zip(layout.named(old).items(), layout.named(fresh).values(), strict=True)
        return layout.flat({name: mixed(tensor, new, self.remains) for (name, tensor), new in pairs})


def mixed(old: Tensor, fresh: Tensor, remains: float) -> Tensor:
    """Return (1 - a) old + a · fresh with ||(1 - a) old|| = remains · ||a · fresh||; fresh where old is zero."""
    length = float(old.norm())
    if length == 0.0:
        return fresh
    a = length / (length + remains * float(fresh.norm()))
    return (1 - a) * old + a * fresh


def training_losses(federation: Federation, w: Tensor, ids: Sequence[str], missing: Missing) -> dict[str, float]:
    """Ask clients for their mean loss on their training data; enter who does not answer in ``missing``."""
    found = federation.evaluate(w, ids, ("train",))
    missing |= found.missing
    return {i: counts["train"]["loss"] for i, counts in found.counts.items() if "train" in counts}
