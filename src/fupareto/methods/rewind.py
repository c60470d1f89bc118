"""Rewind: restart the training from a recorded model that has not seen the forgotten data, without the forget clients.

Training with ``--record rewind`` stores the global model before rounds 0, 1, 2, 3, 4, 6, 8, 11, …, and the round in
which each client first took part. If every forget client took part later than in the first round, unlearning starts
from the last recorded model before that, and the retained clients train to the end: the result is **exact**, because
no number in it depends on the forgotten data. If one took part from the start, the restart is from an early model, by
default within the first tenth of the training, which is **approximate**; ``early=0`` restarts from the initial model
instead, which is exact, and costs a whole training. Every round's record says which it is. A training that went on
from an earlier run is never exact: the earlier one may have seen the data.

Storage: about 2 log2(rounds) models. Communication: one model down and one up per sampled client and round.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fupareto.errors import UserError
from fupareto.federation.contract import Federation
from fupareto.federation.request import VIRTUAL, Request
from fupareto.methods.base import State
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.local import OPTIMIZER


@dataclass(frozen=True)
class RewindState(State):
    """State of a training that was rewound."""

    at: int = 0  # round of the training from which it goes on
    exact: bool = False  # whether no forget client had taken part before it


@dataclass(frozen=True)
class Rewind(FedAvg):
    """Go on from a recorded model of the training, without the forget clients."""

    name: ClassVar[str] = "rewind"
    state: ClassVar[type[State]] = RewindState
    history: ClassVar[str] = "rewind"
    from_training: ClassVar[tuple[str, ...]] = (
        "rounds", "lr", "decay", "epochs", "batch_size", "participation", "aggregation", *OPTIMIZER,
    )  # fmt: skip

    early: float = 0.1  # share of the training within which a client that took part from the start is rewound to

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.early < 1:
            raise ValueError(f"early must lie between 0 and 1, not {self.early}")

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> RewindState:
        """Start from the recorded model; the history of the training is required."""
        forget, retained = self.sides(federation, request)
        assert request is not None  # sides() refuses a training
        history = self.recorded(federation)
        first, plan = history.first(), history.plan
        if not first:
            raise UserError(f"{history.path} does not say who took part when; train again with --record rewind")
        concerned = {i.removesuffix(VIRTUAL) for i in (*forget, *request.left, *request.left_samples)}
        concerned |= set(plan.clients) if request.left_classes else set()
        joined = min((first.get(i, plan.rounds) for i in concerned), default=0)
        limit = joined if joined else int(self.early * plan.rounds)
        at = max(r for r in plan.rewound if r <= limit)
        w = history.global_before(at).to(w0.device)
        exact = at <= joined and not plan.continued
        return RewindState(w=w, forget=forget, retained=retained, seed=seed, at=at, exact=exact)

    def step(self, federation: Federation, state: Any) -> RewindState:
        """Train one more round with the retained clients, at the rate that the training had then."""
        lr, sample = self.lr * self.decay ** (state.at + state.round), state.sampled(self.participation)
        mean = self.trained(federation, state, lr, sample)
        record = {"lr": lr, "step": None if mean.w is None else 1.0, "missing": mean.missing, **state.told(sample)}
        after: RewindState = state.after(
            "train",
            {**record, "rewound": state.at, "exact": state.exact},
            w=state.w if mean.w is None else mean.w,
            done=state.at + state.round + 1 >= self.rounds,
        )
        return after
