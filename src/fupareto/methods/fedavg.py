"""FedAvg (McMahan et al., AISTATS 2017): local training, then the mean of the local models, weighted by samples.

Clients train by plain SGD, or by another optimiser of ``torch.optim``, whose state starts anew in every round.

With ``participation`` below 1 a random share of the clients takes part in each round.

Storage: nothing. Communication: one model down and one up per participating client and round.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from fupareto.federation.averaging import Aggregation
from fupareto.federation.collected import Mean
from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.base import State, decaying, positive, sample_size, share
from fupareto.methods.local import LocalTraining
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class FedAvg(LocalTraining):
    """Train a model by federated averaging; after a request, with the retained clients only."""

    name: ClassVar[str] = "fedavg"

    rounds: int = 200
    lr: float = 0.1
    decay: float = 0.999  # factor of the rate, per round
    epochs: int = 1  # of local training
    batch_size: int = 200
    participation: float = 1.0  # share of the clients that train in a round
    aggregation: Aggregation = "mean"  # trimmed or median: for federations in which clients may lie

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(rounds=self.rounds, lr=self.lr, epochs=self.epochs, batch_size=self.batch_size)
        share(decay=self.decay, participation=self.participation)
        decaying(self.budget, self.decay, lr=self.lr)

    @property
    def budget(self) -> int:
        """Number of rounds."""
        return self.rounds

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> State:
        """Start from ``w0`` with all clients; with a request, with the retained clients."""
        if request is None:
            return State(w=w0, forget=(), retained=federation.ids, seed=seed, stage="initial")
        forget, retained = self.sides(federation, request)
        return State(w=w0, forget=forget, retained=retained, seed=seed, stage="unlearned")

    def rows(self, forget: int, retained: int) -> int:
        """Count none for the mean, which is a running one; otherwise the models of a round."""
        return 0 if self.aggregation == "mean" else sample_size(retained, self.participation)

    def step(self, federation: Federation, state: State) -> State:
        """Train locally at the sampled clients and take the weighted mean of their models."""
        lr, sample = self.lr * self.decay**state.round, state.sampled(self.participation)
        mean = self.trained(federation, state, lr, sample)
        return state.after(
            "train",
            {"lr": lr, "step": None if mean.w is None else 1.0, **mean.told, **state.told(sample)},
            w=state.w if mean.w is None else mean.w,
            done=state.round + 1 >= self.rounds,
        )

    def trained(self, federation: Federation, state: State, lr: float, sample: Sequence[str]) -> Mean:
        """Ask for the mean of local models, at a rate."""
        local = self.locally(lr, self.epochs, self.batch_size, state.stream("train"))
        return federation.train_mean(state.w, sample, Loss("ce"), local, self.aggregation)

    def slowed(self, share: float) -> "FedAvg":
        """Return the same training with everybody, at a constant share of its first rate."""
        return replace(self, lr=share * self.lr, decay=1.0, participation=1.0)

    def onward(self, federation: Federation, w: Tensor, clients: Sequence[str], seed: int) -> Iterator[State]:
        """Yield the state after each further round of training by ``clients``, from ``w``; without end."""
        state = State(w=w, forget=(), retained=tuple(clients), seed=seed)
        while True:
            state = self.step(federation, state)
            yield state
