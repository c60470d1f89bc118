"""MoDe (Zhao et al., IEEE IoT-J 2023): momentum degradation towards a newly trained model, then memory guidance.

The retained clients train a new model v, and degradation moves the global model towards it, w <- λ w + (1 - λ) v.
Guidance then trains w: retained clients on their labels, forget clients on the labels that v predicts for their data.
After the first half of the rounds degradation ends and guidance continues alone.

Faithfulness: reimplemented from its published description; no code is public. The two steps are the paper's; λ,
the half and the rates are ours.

Storage: one more model. Communication per round: two models down and up per retained client while degrading, one
after; two down (w and v) and one up per forget client.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.base import State
from fupareto.methods.staged import CE, Staged, StagedState, moved
from fupareto.randomness import derive
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class MoDeState(StagedState):
    """State of MoDe."""

    v: Tensor = field(default_factory=lambda: torch.empty(0))  # the new model, trained by the retained clients


@dataclass(frozen=True)
class MoDe(Staged):
    """Degrade the model towards a newly trained one, with guidance of all clients."""

    name: ClassVar[str] = "mode"
    state: ClassVar[type[State]] = MoDeState
    from_training: ClassVar[tuple[str, ...]] = ("batch_size",)

    lr: float = 0.1
    momentum: float = 0.95  # λ, weight of w in a degradation
    degrading: float = 0.5  # share of the rounds that degrade

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("momentum", "degrading"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> MoDeState:
        """Start from ``w0``, with a newly initialised model v; w0 itself is not held."""
        forget, retained = self.sides(federation, request)
        v = federation.fresh(derive(seed, "mode"))
        return MoDeState(w=w0, forget=forget, retained=retained, seed=seed, v=v)

    def rows(self, forget: int, retained: int) -> int:
        """Count v; both means are running ones."""
        return 1

    def unlearn(self, federation: Federation, state: MoDeState) -> MoDeState:
        """Degrade in the first half of the rounds; guide in every round."""
        local, missing = self.local(state, self.lr), {}
        w, v, phase = state.w, state.v, "guide"
        if state.round < self.degrading * self.rounds:
            new = federation.train_mean(v, state.retained, CE, local, self.aggregation)
            missing, phase = new.missing, "degrade"
            if new.w is not None:
                v, w = new.w, degraded(w, new.w, self.momentum)
        guidance = {
            **dict.fromkeys(state.forget, local.question(w, Loss("imitate"), v)),
            **dict.fromkeys(state.retained, local.question(w, CE)),
        }
        mean = federation.mean(guidance, w)
        record = {"lr": local.lr, **mean.told, "missing": {**missing, **mean.missing}}
        return moved(state, phase, mean.w, record, v=v)


def degraded(w: Tensor, v: Tensor, momentum: float) -> Tensor:
    """Return λ w + (1 - λ) v."""
    return momentum * w + (1 - momentum) * v
