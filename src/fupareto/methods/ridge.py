"""Ridge head on a fixed feature extractor: clients send sums once, and forgetting leaves theirs out. Exact.

With features f(x), a 1 appended, of the model that training starts from, and one-hot targets y, client i sends
A_i = sum f f^T and B_i = sum f y^T. The last layer is W = (sum_i A_i + ridge I)^-1 sum_i B_i; nothing else is trained.
The sums of a client that is forgotten are left out, so the result is the model that the retained clients would have
trained alone: equal to retraining, to rounding. That holds as far as the feature extractor has not seen the forgotten
data either: use one that was made elsewhere, or a random one.

Training records the sums by client (``record=["ridge"]``, which ``fupareto train`` adds by itself), so a client that is
gone can be forgotten. A client of which samples are forgotten sends the sums of its other samples. With ``anew`` all
retained clients send theirs again, and no record is used: that is retraining, with which an audit compares.

Storage: (features + 1)(features + 1 + classes) numbers per client. Communication: one model down, these numbers up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fupareto.errors import NotApplicable
from fupareto.federation.contract import Federation
from fupareto.federation.questions import Question, Summed, Sums
from fupareto.federation.request import VIRTUAL, Request
from fupareto.methods.base import Method, State, positive


@dataclass(frozen=True)
class RidgeState(State):
    """State of a ridge head: whose sums must be asked for, because part of their data is forgotten."""

    anew: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ridge(Method):
    """Train, or train without the forgotten, the last layer by ridge regression."""

    name: ClassVar[str] = "ridge"
    tasks: ClassVar[tuple[str, ...]] = ("classes",)
    state: ClassVar[type[State]] = RidgeState
    history: ClassVar[str] = "ridge"

    ridge: float = 1.0  # weight of the penalty on the squares of the last layer
    anew: bool = False  # ask the retained clients for their sums, instead of using recorded ones: retraining

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(ridge=self.ridge)

    @property
    def budget(self) -> int:
        """One round."""
        return 1

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> RidgeState:
        """Start from ``w0``: with all clients, or with the recorded sums of the retained ones."""
        self.applicable(federation)
        _shape(federation)
        if request is None:
            return RidgeState(w=w0, forget=(), retained=federation.ids, seed=seed, stage="initial", anew=federation.ids)
        forget, retained = self.sides(federation, request)
        if not self.anew:
            self.recorded(federation)
        parted = {i.removesuffix(VIRTUAL) for i in forget} | set(request.left_samples)
        anew = tuple(i for i in retained if self.anew or i in parted or request.left_classes)
        return RidgeState(w=w0, forget=forget, retained=retained, seed=seed, anew=anew)

    def rows(self, forget: int, retained: int) -> int:
        """Count none: sums are small."""
        return 0

    def step(self, federation: Federation, state: RidgeState) -> RidgeState:
        """Add up the sums of the retained clients and solve for the last layer."""
        features, classes = _shape(federation)
        questions: dict[str, Question] = {i: Sums(state.w, features, classes) for i in state.anew}
        answers, missing = federation.answers(questions)
        gram = torch.zeros(features + 1, features + 1, dtype=torch.float64, device="cpu")
        moments = torch.zeros(features + 1, classes, dtype=torch.float64, device="cpu")
        unheard = dict(missing)
        for i in state.retained:
            sums = self._sums(federation, state, i, answers)
            if sums is None:
                unheard.setdefault(i, "no sums were recorded for it")
                continue
            gram += sums[0].cpu()
            moments += sums[1].cpu()
        exact = state.stage == "initial" or self.anew or not self.recorded(federation).plan.continued
        record = {"lr": 0.0, "step": 1.0, "missing": unheard, "exact": exact}
        if not gram.any():
            return state.after("solve", {**record, "step": None, "exact": False}, done=True)
        eye = torch.eye(features + 1, dtype=torch.float64, device="cpu")
        solved = torch.linalg.solve(gram + self.ridge * eye, moments)  # (features + 1, classes)
        return state.after("solve", record, w=_with_head(federation, state.w, solved), done=True)

    def _sums(
        self, federation: Federation, state: RidgeState, client: str, answers: Mapping[str, object]
    ) -> tuple[Tensor, Tensor] | None:
        """Return the sums of a client: those that it sent now, or those that were recorded."""
        if client in state.anew:
            answer = answers.get(client)
            return (answer.gram, answer.moments) if isinstance(answer, Summed) else None
        kept = self.recorded(federation).sums(client)
        return None if kept is None else (kept["gram"], kept["moments"])


def _shape(federation: Federation) -> tuple[int, int]:
    """Return the inputs and outputs of the last layer; refuse one without a bias."""
    head = federation.layout.head()
    classes, features = head.shape
    if head.stop - head.start != classes * (features + 1):
        raise NotApplicable("Ridge needs a last dense layer with a bias")
    return features, classes


def _with_head(federation: Federation, w: Tensor, solved: Tensor) -> Tensor:
    head, new = federation.layout.head(), w.clone()
    flat = torch.cat([solved[:-1].T.reshape(-1), solved[-1]])
    new[head.start : head.stop] = flat.float().to(w.device)
    return new
