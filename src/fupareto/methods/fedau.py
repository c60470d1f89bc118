"""FedAU (Gu et al., IJCAI 2024): unlearning with an auxiliary last layer that is trained along with the model.

During training every client that may be forgotten also trains a private second head W2 towards random wrong labels;
before each round W2 <- (1 - gamma) W1 + gamma W2, gamma = 0.5. Unlearning replaces the last layer W1 of the model by
(1 - alpha) W1 + alpha · mean_u W2_u.

Faithfulness: from the authors' code, client level, with one difference: there both heads train the features, here only
the first one does, so that the initial model is the same for every method that is compared.

Storage: one last layer per client that may be forgotten. Communication: none for unlearning; in training, one last
layer down and up per such client and round.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fupareto.errors import UserError
from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.staged import Staged, StagedState, moved


@dataclass(frozen=True)
class FedAU(Staged):
    """Replace the last layer by a mix with layers trained towards wrong labels."""

    name: ClassVar[str] = "fedau"
    tasks: ClassVar[tuple[str, ...]] = ("classes",)
    history: ClassVar[str] = "fedau"
    whole_clients: ClassVar[bool] = True
    from_training: ClassVar[tuple[str, ...]] = ("batch_size",)

    rounds: int = 1  # one sum; rounds and lr have no other effect
    alpha: float = 0.9  # weight of the second heads

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must lie between 0 and 1, not {self.alpha}")

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> StagedState:
        """Start from ``w0``, which is not held; raise UserError if a forget client has no second head."""
        state: StagedState = super().init(federation, w0, request, seed)
        heads = self.recorded(federation).heads()
        if absent := [i for i in state.forget if i not in heads]:
            raise UserError(
                f"no second head was trained for client {', '.join(absent)}, only for {', '.join(heads) or 'none'}; "
                "name the clients that may be forgotten in [request] and train again with --record fedau"
            )
        head = federation.layout.head()
        if wrong := [i for i in state.forget if heads[i].numel() != head.stop - head.start]:
            raise UserError(
                f"the second head of client {', '.join(wrong)} has {heads[wrong[0]].numel()} numbers, the last layer "
                f"of the model {head.stop - head.start}; train again with --record fedau"
            )
        return dataclasses.replace(state, w0=torch.empty(0))

    def rows(self, forget: int, retained: int) -> int:
        """Count nothing; second heads are small."""
        return 0

    def unlearn(self, federation: Federation, state: StagedState) -> StagedState:
        """Mix the last layer on the server."""
        heads = self.recorded(federation).heads()
        head, w = federation.layout.head(), state.w.clone()
        second = torch.stack([heads[i] for i in state.forget]).mean(0).to(w.device)
        w[head.start : head.stop] = (1 - self.alpha) * w[head.start : head.stop] + self.alpha * second
        return moved(state, "mix", w, {"lr": self.alpha, "missing": {}, "ended": True})
