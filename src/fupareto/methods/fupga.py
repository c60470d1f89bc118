"""FUPGA (Halimi et al., 2022): projected gradient ascent by the forget clients, in a ball around a reference model.

The reference model is the mean of the retained clients' last local models, w_ref = (w0 - Σ a_u w_u) / (1 - Σ a_u). Each
forget client ascends its own loss from there; after every step a model outside the ball around w_ref is projected onto
its surface. The radius is the root of a third of the mean *squared* distance between w_ref and ten random models.

Faithfulness: from the authors' public notebook, for one client. Several clients are our extension: all of them are
removed from w_ref, each ascends within the same ball, and the server takes the mean of the results. One local epoch
is one round; a client stops at an accuracy of a random guess (the authors stop at a distance tuned by data set).

Storage: the last local models of the forget clients. Communication: one model down and one up per forget client and
round; retained clients are not needed before recovery.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fupareto.errors import NotApplicable, UserError
from fupareto.federation.contract import Federation
from fupareto.federation.history import History
from fupareto.federation.questions import Question, TrainWithin
from fupareto.federation.questions.base import FORWARD
from fupareto.federation.request import Request
from fupareto.methods.base import State, positive
from fupareto.methods.staged import Staged, StagedState, moved
from fupareto.randomness import derive
from fupareto.tasks.losses import Loss

INITS = 10  # random models that determine the radius


@dataclass(frozen=True)
class FUPGAState(StagedState):
    """State of FUPGA: the ball, and the clients that still ascend."""

    center: Tensor = field(default_factory=lambda: torch.empty(0))  # the reference model
    radius: float = 0.0
    active: tuple[str, ...] = ()  # forget clients with an accuracy above that of a random guess


@dataclass(frozen=True)
class FUPGA(Staged):
    """Gradient ascent by the forget clients, projected into a ball."""

    name: ClassVar[str] = "fupga"
    tasks: ClassVar[tuple[str, ...]] = ("classes",)  # a random guess is right as often as one of the outputs
    state: ClassVar[type[State]] = FUPGAState
    history: ClassVar[str] = "fupga"
    whole_clients: ClassVar[bool] = True
    from_training: ClassVar[tuple[str, ...]] = ("batch_size",)

    momentum: float = 0.9
    clip: float = 5.0  # largest norm of a batch's gradient

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(clip=self.clip)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie between 0 and 1, not {self.momentum}")

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> FUPGAState:
        """Start from the reference model and compute the radius."""
        forget, retained = self.sides(federation, request)
        if request is not None and request.left:
            raise NotApplicable(
                "FUPGA starts from the final model of the training, which an earlier request has changed; forget the "
                "clients together in one request"
            )
        federation.layout.head()  # raises an error if the number of classes is unknown
        center = reference_model(w0, self.recorded(federation), forget)
        fresh = (federation.fresh(derive(seed, "fupga", k)) for k in range(INITS))  # one at a time
        squared = sum(float((center - w).double().square().sum()) for w in fresh) / INITS
        return FUPGAState(
            w=center,
            forget=forget,
            retained=retained,
            seed=seed,
            center=center,
            radius=(squared / 3) ** 0.5,
            active=forget,
        )

    def rows(self, forget: int, retained: int) -> int:
        """Count the models of the forget clients and the reference model."""
        return forget + 1

    def unlearn(self, federation: Federation, state: FUPGAState) -> FUPGAState:
        """Run local ascent at the active clients and take the mean of their models."""
        local, ascent = self.local(state, self.lr), Loss("ascent")
        within = (ascent, local.lr, self.momentum, self.clip, local.epochs, local.batch_size, local.seed)
        question: Question = TrainWithin(state.w, state.center, state.radius, *within)
        answer = federation.models(dict.fromkeys(state.active, question))
        record = {"lr": local.lr, "missing": answer.missing}
        if not answer.ids:
            return moved(state, "ascend", None, record)
        w = answer.models.mean(0)
        guess = 1.0 / federation.layout.head().shape[0]
        seen = federation.evaluate(w, state.forget, ("train",))
        federation.traffic.passes += FORWARD * len(state.forget)  # a part of the method, not a measurement
        known = {i: seen.accuracy(i, "train") for i in state.forget}
        active = tuple(i for i, a in known.items() if a is None or a > guess)
        record |= {"ended": not active, "missing": {**answer.missing, **seen.missing}}
        return moved(state, "ascend", w, record, active=active)


def reference_model(w0: Tensor, history: History, forget: tuple[str, ...]) -> Tensor:
    """Return (w0 - Σ a_u w_u) / (1 - Σ a_u), where a_u is the client's share of the samples."""
    sizes = {i: found[1] for i in history.plan.clients if (found := history.last(i)) is not None}
    if absent := [i for i in forget if i not in sizes]:
        raise UserError(f"client {', '.join(absent)} took no part in the last round of training, which FUPGA needs")
    total, share = w0.double().clone(), 0.0
    for i in forget:
        found = history.last(i)
        assert found is not None
        weight = found[1] / sum(sizes.values())
        total -= weight * found[0].to(w0.device).double()
        share += weight
    return (total / (1.0 - share)).float()
