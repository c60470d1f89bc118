"""Who answers the server's questions? The Federation contract, which every engine implements, and requests.

An engine implements one method, :meth:`Federation.ask`. Everything that must hold whatever the engine (the
order of answers, refusing unusable ones, naming who is missing, counting bytes) is here, once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fupareto.errors import UserError
from fupareto.federation.questions import (
    Answer,
    Evaluate,
    Evaluated,
    Failure,
    Gradient,
    LossAndGradient,
    Losses,
    PseudoGradient,
    Question,
    Train,
    Trained,
    TrialLosses,
)
from fupareto.losses import Loss
from fupareto.parameters import Layout

Missing = dict[str, str]  # client id -> why it did not answer
FLOAT = 4  # bytes of a float32, the unit of everything large that crosses the network


@dataclass(frozen=True)
class Request:
    """What must be forgotten: whole clients, by id.

    Methods see only the two sides of :meth:`sides`. Requests for samples or classes will turn part of a client
    into a virtual client there, so methods will not know the difference.
    """

    clients: tuple[str, ...]

    def sides(self, ids: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the forget set and the retained set, in the federation's order."""
        unknown = [c for c in self.clients if c not in ids]
        if unknown:
            raise UserError(f"no client {', '.join(map(repr, unknown))} in the federation; it has {', '.join(ids)}")
        if not self.clients:
            raise UserError(f"the request names nobody to forget; name clients among {', '.join(ids)}")
        if set(self.clients) == set(ids):
            raise UserError(
                "the request forgets every client, so there is nobody to keep the model for; "
                "delete the model instead, or leave at least one client out of the request"
            )
        return tuple(i for i in ids if i in self.clients), tuple(i for i in ids if i not in self.clients)


@dataclass
class Traffic:
    """Bytes that crossed the network, or would have: the payload, without any protocol's overhead."""

    up: int = 0
    down: int = 0


@dataclass(frozen=True)
class Local:
    """How a client works locally for a training round or a pseudo-gradient."""

    lr: float
    epochs: int = 1
    batch_size: int = 200
    seed: int = 0


@dataclass(frozen=True)
class Gradients:
    """Losses and gradients of the clients that answered, in the order asked."""

    ids: tuple[str, ...]
    losses: NDArray[np.float64]  # (clients,)
    gradients: Tensor  # (clients, parameters) float32
    steps: NDArray[np.float64]  # (clients,) batches summed in each gradient
    missing: Missing = field(default_factory=dict)


@dataclass(frozen=True)
class Models:
    """Local models of the clients that answered, in the order asked."""

    ids: tuple[str, ...]
    models: Tensor  # (clients, parameters) float32
    sizes: tuple[int, ...]
    missing: Missing = field(default_factory=dict)


@dataclass(frozen=True)
class Mean:
    """The mean of local models, weighted by their samples; ``w`` is None when nobody answered."""

    ids: tuple[str, ...]
    w: Tensor | None
    missing: Missing = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """Counts by client and split of the clients that answered."""

    counts: dict[str, dict[str, dict[str, float]]]
    missing: Missing = field(default_factory=dict)

    def accuracy(self, client: str, split: str) -> float | None:
        """Return the fraction of right answers, or None where there is nothing to count."""
        found = self.counts.get(client, {}).get(split)
        return found["right"] / found["samples"] if found and found["samples"] else None


class Federation(ABC):
    """All clients, as the server sees them."""

    ids: tuple[str, ...]
    layout: Layout
    traffic: Traffic
    steps_per_question: int | None = None  # trial steps an engine prefers in one question; None: all of them

    @abstractmethod
    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        """Put a question to each client and yield their answers in the order of ``questions``.

        A client that fails or does not answer in time yields a Failure; the engine never raises for it.
        """

    def train(self, w: Tensor, ids: Sequence[str], loss: Loss, local: Local) -> Models:
        """Ask for local models: n down, n up per client."""
        missing: Missing = {}
        found = [(i, a) for i, a in self._train(w, ids, loss, local, missing)]
        models = torch.stack([a.w for _, a in found]) if found else torch.empty(0, self.layout.size)
        return Models(tuple(i for i, _ in found), models, tuple(a.size for _, a in found), missing)

    def train_mean(self, w: Tensor, ids: Sequence[str], loss: Loss, local: Local) -> Mean:
        """Ask for local models and keep only their running mean, weighted by samples, in float64."""
        missing: Missing = {}
        answered, total, weight = [], torch.zeros(self.layout.size, dtype=torch.float64), 0
        for i, trained in self._train(w, ids, loss, local, missing):
            total.add_(trained.w, alpha=trained.size)
            weight += trained.size
            answered.append(i)
        return Mean(tuple(answered), (total / weight).float() if weight else None, missing)

    def _train(
        self, w: Tensor, ids: Sequence[str], loss: Loss, local: Local, missing: Missing
    ) -> Iterator[tuple[str, Trained]]:
        question = Train(w, loss, local.lr, local.epochs, local.batch_size, local.seed)
        self.traffic.down += FLOAT * w.numel() * len(ids)
        for i, answer in self._usable(dict.fromkeys(ids, question), missing):
            assert isinstance(answer, Trained)
            self.traffic.up += FLOAT * w.numel()
            yield i, answer

    def gradients(
        self,
        w: Tensor,
        objectives: Mapping[str, Loss],
        pseudo: Local | None = None,
        mode: str = "eval",
        seed: int = 0,
    ) -> Gradients:
        """Ask each client for its loss and gradient: n down, n + 1 up per client.

        With ``pseudo`` the gradient is the pseudo-gradient of local SGD, summed over ``steps`` batches.
        """
        questions: dict[str, Question] = {}
        for i, loss in objectives.items():
            if pseudo is None:
                questions[i] = Gradient(w, loss, mode, seed)
            else:
                questions[i] = PseudoGradient(w, loss, pseudo.lr, pseudo.epochs, pseudo.batch_size, mode, pseudo.seed)
        self.traffic.down += FLOAT * w.numel() * len(objectives)
        missing: Missing = {}
        ids: list[str] = []
        losses, steps = [], []
        rows = torch.empty(len(objectives), w.numel())
        for i, answer in self._usable(questions, missing):
            assert isinstance(answer, LossAndGradient)
            self.traffic.up += FLOAT * (w.numel() + 1)
            rows[len(ids)] = answer.gradient
            ids.append(i)
            losses.append(answer.loss)
            steps.append(answer.steps)
        return Gradients(
            tuple(ids), np.array(losses, np.float64), rows[: len(ids)], np.array(steps, np.float64), missing
        )

    def losses(
        self,
        w: Tensor,
        direction: Tensor,
        steps: Sequence[float],
        objectives: Mapping[str, Loss],
        missing: Missing,
        mode: str = "eval",
        seed: int = 0,
        limits: Sequence[Mapping[str, float]] | None = None,
    ) -> Iterator[NDArray[np.float64]]:
        """Yield, step by step, the clients' losses at ``w - step · direction``: n down once, scalars up.

        The clients know ``w`` from the gradient question of the same round. A caller that stops early saves the
        remaining forward passes where the engine asks step by step, and so does a client whose loss is above its
        limit for the step: nobody else needs to be asked, and it is asked first at the next step. A diverged loss is
        ``inf``; a client that was not asked or did not answer is ``nan``, and the latter is named in ``missing``.
        """
        order = list(objectives)
        self.traffic.down += FLOAT * w.numel() * len(objectives)
        size = self.steps_per_question or len(steps)
        for start in range(0, len(steps), size):
            chunk = tuple(steps[start : start + size])
            questions: dict[str, Question] = {
                i: TrialLosses(w, direction, chunk, objectives[i], mode, seed) for i in order
            }
            table = {i: np.full(len(chunk), np.nan) for i in objectives}
            for i, answer in self._usable(questions, missing):
                assert isinstance(answer, Losses)
                losses = np.array(answer.losses, np.float64)
                table[i] = np.where(np.isfinite(losses), losses, np.inf)
                if limits is not None and size == 1 and table[i][0] > limits[start][i]:
                    order = [i, *(j for j in order if j != i)]
                    break
            # Counted as on a network, where everybody is asked at once.
            self.traffic.down += FLOAT * len(chunk) * len(objectives)
            self.traffic.up += FLOAT * len(chunk) * sum(i not in missing for i in objectives)
            yield from np.array(list(table.values())).T

    def evaluate(self, w: Tensor, ids: Sequence[str], splits: Sequence[str]) -> Evaluation:
        """Ask for right answers on the named splits: n down, a few numbers up per client."""
        self.traffic.down += FLOAT * w.numel() * len(ids)
        missing: Missing = {}
        counts = {}
        for i, answer in self._usable(dict.fromkeys(ids, Evaluate(w, tuple(splits))), missing):
            assert isinstance(answer, Evaluated)
            self.traffic.up += 3 * FLOAT * len(answer.counts)
            counts[i] = answer.counts
        return Evaluation(counts, missing)

    def _usable(self, questions: Mapping[str, Question], missing: Missing) -> Iterator[tuple[str, Answer]]:
        """Pass on what a method can use; enter the rest in ``missing`` with the reason."""
        for i, answer in self.ask(questions):
            try:
                reason = answer.reason if isinstance(answer, Failure) else _flaw(questions[i], answer, self.layout.size)
            except (TypeError, KeyError, AttributeError, ValueError) as error:
                reason = f"answered with something malformed: {type(error).__name__}: {error}"
            if reason is None:
                assert not isinstance(answer, Failure)
                yield i, answer
            else:
                missing[i] = reason


_EXPECTED: dict[type[Question], type[Answer]] = {
    Train: Trained,
    Gradient: LossAndGradient,
    PseudoGradient: LossAndGradient,
    TrialLosses: Losses,
    Evaluate: Evaluated,
}


def _flaw(question: Question, answer: Answer, size: int) -> str | None:
    """Say what is wrong with an answer: its type, its shape, or numbers that are not finite."""
    expected = _EXPECTED[type(question)]
    if not isinstance(answer, expected):
        return f"answered with {type(answer).__name__}, not {expected.__name__}"
    match answer:
        case Trained(w=vector) | LossAndGradient(gradient=vector):
            if not isinstance(vector, Tensor) or tuple(vector.shape) != (size,):
                return f"answered with shape {tuple(getattr(vector, 'shape', ()))}, not ({size},)"
            if vector.dtype != torch.float32:
                return f"answered in {vector.dtype}, not torch.float32"
            if not bool(torch.isfinite(vector).all()):
                return "answered with numbers that are not finite"
            if isinstance(answer, Trained) and not 1 <= answer.size < np.inf:
                return f"trained on {answer.size} samples"
            if isinstance(answer, LossAndGradient) and not (np.isfinite(answer.loss) and answer.steps >= 1):
                return f"answered with loss {answer.loss} after {answer.steps} steps"
        case Losses(losses=losses):
            assert isinstance(question, TrialLosses)
            if np.array(losses, np.float64).shape != (len(question.steps),):
                return f"answered {len(losses)} losses for {len(question.steps)} trial steps"
        case Evaluated(counts=counts):
            for split, c in counts.items():
                if not 0 <= c["right"] <= c["samples"]:
                    return f"counted {c['right']} right answers in {c['samples']} samples of '{split}'"
    return None
