"""FedEditor (X. Yuan et al., IEEE TIFS 2025): forget clients edit the representations of their samples.

Each forget client pulls the representation of every sample to the centroid of the nearest wrong class, preserves the
outputs on held-out data, and penalises the distance to w0. Retained clients do not take part. The server takes the mean
of the edited models.

Faithfulness: reimplemented from its published description (abstract, read-me and flags of a run script; the code was
not available to us). Centroids come from the client's held-out data; a client that is forgotten as a whole has
no remaining data, so the same held-out data are used to preserve the outputs.

Storage: w0. Communication: two models down (w and w0), one up per forget client and round.
"""

from dataclasses import dataclass
from typing import ClassVar

from fupareto.federation.contract import Federation
from fupareto.federation.questions import Edit, Question
from fupareto.methods.base import positive
from fupareto.methods.staged import Staged, StagedState, moved


@dataclass(frozen=True)
class FedEditor(Staged):
    """Edit representations at the forget clients and take the mean of their models."""

    name: ClassVar[str] = "fededitor"
    tasks: ClassVar[tuple[str, ...]] = ("classes",)
    from_training: ClassVar[tuple[str, ...]] = ("batch_size",)

    lr: float = 1e-3
    tau: float = 0.5  # temperature of the alignment
    mu: float = 1.0  # weight of the distance to w0
    keep: bool = True  # preserve the outputs on held-out data

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(tau=self.tau)
        if self.mu < 0:
            raise ValueError(f"mu must not be negative, not {self.mu}")

    def rows(self, forget: int, retained: int) -> int:
        """Count the models of the forget clients, and w0."""
        return forget + 1

    def unlearn(self, federation: Federation, state: StagedState) -> StagedState:
        """Edit locally at the forget clients and take the mean."""
        local = self.local(state, self.lr)
        work = (local.lr, local.epochs, local.batch_size, local.seed)
        question: Question = Edit(state.w, state.w0, self.tau, self.mu, self.keep, *work)
        answer = federation.models(dict.fromkeys(state.forget, question))
        w = answer.models.mean(0) if answer.ids else None
        return moved(state, "edit", w, {"lr": local.lr, "missing": answer.missing})
