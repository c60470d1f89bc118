"""The Federation base class: what a server can ask of its clients, independent of the engine.

An engine implements one method, :meth:`Federation.ask`. What is the same for every engine (the order of answers,
rejecting unusable answers, reporting missing clients, counting bytes) is implemented here. A federation has no state
between questions; that is kept in wrappers (``wrappers.py``, ``recording.py``) or in a method's state.

Docstrings give the traffic per client, where n is the size of the model.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fupareto.errors import UserError
from fupareto.federation.averaging import Aggregation, Claims, coordinatewise, weighted
from fupareto.federation.collected import FLOAT, Evaluation, Gradients, Local, Mean, Missing, Models, Traffic, Trial
from fupareto.federation.questions import (
    Answer,
    Compare,
    Compared,
    Digest,
    Digested,
    Evaluate,
    Evaluated,
    Failure,
    Gradient,
    LossAndGradient,
    Losses,
    PseudoGradient,
    Question,
    Signalled,
    Signals,
    Trained,
    TrialLosses,
    flaw,
)
from fupareto.federation.request import Request
from fupareto.parameters import Layout
from fupareto.tasks import Classes, Task
from fupareto.tasks.losses import Loss


class Federation(ABC):
    """All clients of a federation, as the server sees them.

    Attributes:
        ids: The clients, in the order in which everything about them is reported.
        layout: Names and shapes of the parameters in a flat model vector.
        traffic: Bytes and passes counted so far.
        steps_per_question: Trial steps that the engine prefers in one question; None for all of them.
        device: Device of models and answers.
        holds_answers: Whether the engine has all answers in memory before it yields the first.
        packages: Packages that the engine uses, for the provenance of a run.
        provenance: What else the summary of a run says of the engine, such as how clients are identified.
        task: What the clients' samples, outputs and losses are.
    """

    ids: tuple[str, ...]
    layout: Layout
    traffic: Traffic
    steps_per_question: int | None = None
    device = torch.device("cpu")
    holds_answers = True
    packages: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = MappingProxyType({})
    task: Task = Classes()

    def at(self, round_: int) -> "Federation":
        """Return the federation for a round, for engines and wrappers that label messages or files by round."""
        return self

    def session(self) -> AbstractContextManager[None]:
        """Return a context manager for many questions, in which an engine may keep threads or connections open."""
        return nullcontext()

    @abstractmethod
    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        """Ask each client its question and yield the answers in the order of ``questions``.

        For a client that fails or does not answer in time, the answer is a Failure; no exception is raised.

        Args:
            questions: One question by client id.

        Yields:
            Client id and answer.
        """

    def foresee(self, w: Tensor, splits: Mapping[str, tuple[str, ...]]) -> bool:
        """Announce that ``evaluate_each(w, splits)`` will be asked after the next question.

        An engine for which messages are expensive sends it together with that question. It does not change an answer.

        Args:
            w: The model.
            splits: Names of splits by client.

        Returns:
            Whether the engine makes use of it; if not, there is no reason to wait.
        """
        return False

    def memory(self, clients: int, batch: int) -> int:
        """Return the bytes of memory that the engine needs on this machine, without data and collected answers.

        The default is for an engine that receives all answers before it yields the first: each answer is held twice, as
        a message and as a tensor.

        Args:
            clients: Number of clients that are asked at once.
            batch: Batch size of local training.
        """
        return 2 * FLOAT * self.layout.size * clients

    def fresh(self, seed: int) -> Tensor:
        """Return a newly initialised model (parameters,)."""
        raise UserError(f"{type(self).__name__} cannot make a newly initialised model, which this method needs")

    def divided(self, request: Request) -> "Federation":
        """Return the federation in which the samples or classes of a request are virtual clients."""
        if request.divides:
            raise UserError(f"{type(self).__name__} cannot forget samples or classes, only whole clients")
        return self

    def judged(self, task: Task) -> "Federation":
        """Return the federation with other options of the same task, such as a tolerance."""
        if task == self.task:
            return self
        raise UserError(f"{type(self).__name__} cannot change the options of its task")

    def train(self, w: Tensor, ids: Sequence[str], loss: Loss, local: Local) -> Models:
        """Ask for local models: n down, n up per client.

        Args:
            w: The model to train from.
            ids: The clients to ask.
            loss: Loss to minimise.
            local: Parameters of local training.
        """
        return self.models(dict.fromkeys(ids, local.question(w, loss)))

    def train_mean(
        self, w: Tensor, ids: Sequence[str], loss: Loss, local: Local, aggregation: Aggregation = "mean"
    ) -> Mean:
        """Ask for local models and return their mean: n down, n up per client.

        Args:
            w: The model to train from.
            ids: The clients to ask.
            loss: Loss to minimise.
            local: Parameters of local training.
            aggregation: Which mean, see averaging.py.
        """
        questions: dict[str, Question] = dict.fromkeys(ids, local.question(w, loss))
        if aggregation == "mean":
            return self.mean(questions, w)
        found = self.models(questions)
        mean = coordinatewise(found.models, aggregation) if found.ids else None
        return Mean(found.ids, mean, found.missing)

    def models(self, questions: Mapping[str, Question]) -> Models:
        """Ask questions that are answered by local models."""
        missing: Missing = {}
        sizes: dict[str, int] = {}
        rows = torch.empty(len(questions), self.layout.size, device=self.device)
        for i, trained in self._each(questions, missing):
            assert isinstance(trained, Trained)
            rows[len(sizes)] = trained.w
            sizes[i] = trained.size
        return Models(tuple(sizes), rows[: len(sizes)], tuple(sizes.values()), missing)

    def mean(self, questions: Mapping[str, Question], base: Tensor) -> Mean:
        """Ask questions that are answered by local models; return their mean, weighted by samples.

        The mean is a running one. Only if a client's size or update turns out to be far from those of the others, it is
        taken again with limits, for which an engine that does not hold the answers asks once more.

        Args:
            questions: One question by client id.
            base: The model that local models are trained from.
        """
        missing: Missing = {}
        claims, total, weight = Claims(), torch.zeros(self.layout.size, dtype=torch.float64, device=self.device), 0
        held: list[tuple[str, Tensor]] = []
        for i, trained in self._each(questions, missing):
            assert isinstance(trained, Trained)
            total.add_(trained.w, alpha=trained.size)
            weight += trained.size
            claims.add(i, trained.size, trained.w - base)
            if self.holds_answers:
                held.append((i, trained.w))
        answered, limited = tuple(claims.sizes), claims.limited
        if limited:
            again = held or self._again({i: questions[i] for i in answered})
            return Mean(answered, weighted(again, base, claims).float(), missing, limited)
        return Mean(answered, total.div_(weight).float() if weight else None, missing)

    def _again(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Tensor]]:
        """Ask for the same local models once more; who answers otherwise than before is left out."""
        return ((i, answer.w) for i, answer in self._usable(questions, {}) if isinstance(answer, Trained))

    def answers(self, questions: Mapping[str, Question]) -> tuple[dict[str, Answer], Missing]:
        """Ask any questions; return the answers and the clients that gave no usable answer."""
        missing: Missing = {}
        return dict(self._each(questions, missing)), missing

    def _each(self, questions: Mapping[str, Question], missing: Missing) -> Iterator[tuple[str, Answer]]:
        self.traffic.down += sum(map(_payload, questions.values()))
        for i, answer in self._usable(questions, missing):
            self.traffic.up += _payload(answer)
            self.traffic.passes += questions[i].passes
            yield i, answer

    def gradients(
        self,
        w: Tensor,
        objectives: Mapping[str, Loss],
        pseudo: Local | None = None,
        *,
        mode: str = "eval",
        seed: int = 0,
        reference: Tensor | None = None,
        keep: bool = False,
        repeated: bool = False,
    ) -> Gradients:
        """Ask each client for its loss and gradient: n down, n + 1 up per client, and n down for a reference.

        Args:
            w: The model.
            objectives: The loss of every client that is asked.
            pseudo: Local training whose pseudo-gradient, summed over its batches, replaces the gradient.
            mode: Mode of the module, "eval", or "train" with dropout active.
            seed: Seed of random operations on the clients.
            reference: Reference model, sent to clients whose loss uses one.
            keep: Whether a wrapper may keep the answers, because the next round may ask the same question.
            repeated: Whether the last round asked the same question. Its bytes are not counted again, and a wrapper
                that has kept the answers returns them; a process that was restarted asks again.
        """
        questions: dict[str, Question] = {}
        for i, loss in objectives.items():
            other = reference if loss.referenced else None
            if pseudo is None:
                questions[i] = Gradient(w, loss, mode, seed, other)
            else:
                local = (pseudo.lr, pseudo.epochs, pseudo.batch_size)
                questions[i] = PseudoGradient(w, loss, *local, mode, pseudo.seed, other)
        missing: Missing = {}
        ids: list[str] = []
        losses, steps = [], []
        rows = torch.empty(len(objectives), w.numel(), device=w.device)
        for i, answer in self._usable(questions, missing):
            assert isinstance(answer, LossAndGradient)
            rows[len(ids)] = answer.gradient
            ids.append(i)
            losses.append(answer.loss)
            steps.append(answer.steps)
        if not repeated:
            self.traffic.down += sum(map(_payload, questions.values()))
            self.traffic.up += FLOAT * (w.numel() + 1) * len(ids)
            self.traffic.passes += sum(questions[i].passes for i in ids)
        return Gradients(
            tuple(ids), np.array(losses, np.float64), rows[: len(ids)], np.array(steps, np.float64), missing
        )

    def losses(
        self,
        trial: Trial,
        objectives: Mapping[str, Loss],
        missing: Missing,
        limits: Sequence[Mapping[str, float]] | None = None,
        first: str = "",
    ) -> Iterator[NDArray[np.float64]]:
        """Yield, step by step, the clients' losses at ``w - step · direction``: n down once, scalars up.

        The clients have ``w`` from the gradient question of the same round, but for those that the trial names, which
        are sent it now. If the engine asks step by step, a caller that stops early saves the remaining forward passes,
        and so does a client whose loss is above its limit for a step: the remaining clients are not asked, and this
        client is asked first at the next step.

        Args:
            trial: The model, the direction and the steps.
            objectives: The loss of every client that is asked.
            missing: Filled with the clients that do not answer, with the reason.
            limits: For every step, the largest acceptable loss of every client; None asks all clients at every step.
            first: The client that is asked first.

        Yields:
            One loss per client in the order of ``objectives``: ``inf`` where it has diverged, ``nan`` for a client
            that was not asked or did not answer.
        """
        self.traffic.down += FLOAT * trial.w.numel() * (len(objectives) + len(trial.lacking))
        size = self.steps_per_question or len(trial.steps)
        for start in range(0, len(trial.steps), size):
            steps = trial.steps[start : start + size]
            questions: dict[str, Question] = {
                i: TrialLosses(trial.w, trial.direction, steps, objectives[i], trial.mode, trial.seed)
                for i in sorted(objectives, key=lambda i: i != first)
            }
            table = {i: np.full(len(steps), np.nan) for i in objectives}
            for i, answer in self._usable(questions, missing):
                assert isinstance(answer, Losses)
                self.traffic.passes += questions[i].passes
                losses = np.array(answer.losses, np.float64)
                table[i] = np.where(np.isfinite(losses), losses, np.inf)
                if limits is not None and size == 1 and table[i][0] > limits[start][i]:
                    first = i
                    break
            # Bytes are counted as on a network, where all clients are asked at once.
            self.traffic.down += FLOAT * len(steps) * len(objectives)
            self.traffic.up += FLOAT * len(steps) * sum(i not in missing for i in objectives)
            yield from np.array(list(table.values())).T

    def evaluate(self, w: Tensor, ids: Sequence[str], splits: Sequence[str]) -> Evaluation:
        """Ask for accuracy and loss on the named splits: n down, a few numbers up per client."""
        return self.evaluate_each(w, dict.fromkeys(ids, tuple(splits)))

    def evaluate_each(self, w: Tensor, splits: Mapping[str, tuple[str, ...]]) -> Evaluation:
        """Ask for accuracy and loss on other splits for each client: n down, a few numbers up per client."""
        self.traffic.down += FLOAT * w.numel() * len(splits)
        missing: Missing = {}
        counts = {}
        for i, answer in self._usable({i: Evaluate(w, names) for i, names in splits.items()}, missing):
            assert isinstance(answer, Evaluated)
            self.traffic.up += 3 * FLOAT * len(answer.counts)
            counts[i] = answer.counts
        return Evaluation(counts, missing)

    def signals(self, w: Tensor, ids: Sequence[str], splits: Sequence[str]) -> tuple[dict[str, Signalled], Missing]:
        """Ask for signals per sample, for audits: n down, at most 14 numbers per sample up per client."""
        answers, missing = self.answers(dict.fromkeys(ids, Signals(w, tuple(splits))))
        return {i: a for i, a in answers.items() if isinstance(a, Signalled)}, missing

    def compare(
        self, w: Tensor, other: Tensor, ids: Sequence[str], splits: Sequence[str]
    ) -> tuple[dict[str, Compared], Missing]:
        """Ask how far the outputs of two models are apart, for audits: 2 n down, four numbers up per client."""
        answers, missing = self.answers(dict.fromkeys(ids, Compare(w, other, tuple(splits))))
        return {i: a for i, a in answers.items() if isinstance(a, Compared)}, missing

    def digests(self) -> dict[str, str | None]:
        """Ask every client for the digest of its data; None for a client that does not answer."""
        answers, _ = self.answers(dict.fromkeys(self.ids, Digest()))
        found = {i: a.sha256 for i, a in answers.items() if isinstance(a, Digested)}
        return {i: found.get(i) for i in self.ids}

    def _usable(self, questions: Mapping[str, Question], missing: Missing) -> Iterator[tuple[str, Answer]]:
        """Yield usable answers; enter the other clients in ``missing`` with the reason."""
        for i, answer in self.ask(questions):
            reason = flaw(questions[i], answer, self.layout.size)
            if reason is None:
                assert not isinstance(answer, Failure)
                yield i, answer
            else:
                missing[i] = reason


def _payload(message: Question | Answer) -> int:
    """Return the bytes of a message's tensors; other values are neglected."""
    values = vars(message).values()
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, Tensor))
