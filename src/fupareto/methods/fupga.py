"""FUPGA (Halimi et al., 2022): gradient ascent by those who leave, within a ball around what the others know.

The reference model is the mean of the other clients' last local models, w_ref = (w0 - Σ a_u w_u) / (1 - Σ a_u). Each
leaving client ascends its own loss from there; after every step a model outside the ball around w_ref goes back to
its surface. The radius is the root of a third of the mean *squared* distance between w_ref and ten random models.

Faithfulness: from the authors' public notebook, for one client. Several clients are our extension: all of them are
taken out of w_ref, each ascends within the same ball, and the server takes the mean of the results. One local epoch
is one round; a client stops at an accuracy of a random guess (the authors stop at a distance tuned by data set).

Storage: the last local models of those who leave. Communication: one model down and one up per forget client and
round; the others are not needed before recovery.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fupareto.errors import NotApplicable, UserError
from fupareto.federation.contract import Federation
from fupareto.federation.history import History
from fupareto.federation.questions import Question, TrainWithin
from fupareto.federation.request import Request
from fupareto.methods.base import State, positive
from fupareto.methods.staged import Staged, StagedState, moved
from fupareto.randomness import derive
from fupareto.tasks.losses import Loss

INITS = 10  # random models that set the radius


@dataclass(frozen=True)
class FUPGAState(StagedState):
    """The ball, and who has not forgotten yet."""

    center: Tensor = field(default_factory=lambda: torch.empty(0))
    radius: float = 0.0
    active: tuple[str, ...] = ()


@dataclass(frozen=True)
class FUPGA(Staged):
    """Ascend within a ball."""

    name: ClassVar[str] = "fupga"
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
        """Start at the reference model; measure the ball."""
        forget, retained = self.sides(federation, request)
        if request is not None and request.left:
            raise NotApplicable(
                "FUPGA takes clients out of the model that training ended with, and that is gone once another client "
                "was forgotten; forget them together"
            )
        federation.layout.head()  # which says how many classes there are
        center = reference_model(w0, self.recorded(federation), forget)
        fresh = (federation.fresh(derive(seed, "fupga", k)) for k in range(INITS))  # one at a time
        squared = sum(float((center - w).double().square().sum()) for w in fresh) / INITS
        return FUPGAState(
            w=center,
            forget=forget,
            retained=retained,
            seed=seed,
            w0=w0,
            center=center,
            radius=(squared / 3) ** 0.5,
            active=forget,
        )

    def rows(self, forget: int, retained: int) -> int:
        """Hold the models of those who leave, w0 and the reference model."""
        return forget + 2

    def unlearn(self, federation: Federation, state: FUPGAState) -> FUPGAState:
        """One local epoch of ascent by everybody who has not forgotten yet; the mean of the results."""
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
        known = {i: seen.accuracy(i, "train") for i in state.forget}
        active = tuple(i for i, a in known.items() if a is None or a > guess)
        record |= {"ended": not active, "missing": {**answer.missing, **seen.missing}}
        return moved(state, "ascend", w, record, active=active)


def reference_model(w0: Tensor, history: History, forget: tuple[str, ...]) -> Tensor:
    """Return (w0 - Σ a_u w_u) / (1 - Σ a_u), the weights a being the clients' shares of the samples."""
    sizes = {i: found[1] for i in history.plan.clients if (found := history.last(i)) is not None}
    if absent := [i for i in forget if i not in sizes]:
        raise UserError(
            f"client {', '.join(absent)} took no part in the last round of training, so FUPGA has no model to take out"
        )
    total, share = w0.double().clone(), 0.0
    for i in forget:
        found = history.last(i)
        assert found is not None
        weight = found[1] / sum(sizes.values())
        total -= weight * found[0].to(w0.device).double()
        share += weight
    return (total / (1.0 - share)).float()
