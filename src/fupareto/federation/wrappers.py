"""Wrappers around federations, which add state between questions."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from fupareto.federation.collected import Gradients, Local, Missing
from fupareto.federation.contract import Federation
from fupareto.federation.questions import Answer, Failure, Question
from fupareto.federation.request import Request
from fupareto.tasks import Task
from fupareto.tasks.losses import Loss


class Wrapper(Federation):
    """Base class of wrappers: passes everything on to the inner federation."""

    def __init__(self, inner: Federation) -> None:
        self.inner = inner
        self.ids, self.layout, self.traffic = inner.ids, inner.layout, inner.traffic
        self.steps_per_question, self.packages, self.device = inner.steps_per_question, inner.packages, inner.device
        self.holds_answers, self.provenance, self.task = inner.holds_answers, inner.provenance, inner.task

    def around(self, inner: Federation) -> Self:
        """Return the same wrapper around another federation."""
        if inner is self.inner:
            return self
        other = copy.copy(self)
        Wrapper.__init__(other, inner)
        return other

    def at(self, round_: int) -> Federation:
        """Return the wrapper around the inner federation for a round."""
        return self.around(self.inner.at(round_))

    def divided(self, request: Request) -> Federation:
        """Return the wrapper around the inner federation with virtual clients."""
        return self.around(self.inner.divided(request))

    def judged(self, task: Task) -> Federation:
        """Return the wrapper around the inner federation with other options of its task."""
        return self.around(self.inner.judged(task))

    def session(self) -> AbstractContextManager[None]:
        """Return the session of the inner federation."""
        return self.inner.session()

    def memory(self, clients: int, batch: int) -> int:
        """Return the memory of the inner federation."""
        return self.inner.memory(clients, batch)

    def foresee(self, w: Tensor, splits: Mapping[str, tuple[str, ...]]) -> bool:
        """Announce an evaluation to the inner federation."""
        return self.inner.foresee(w, splits)

    def fresh(self, seed: int) -> Tensor:
        """Return a newly initialised model of the inner federation."""
        return self.inner.fresh(seed)

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        """Ask the inner federation."""
        return self.inner.ask(questions)


@dataclass
class _Kept:
    """Kept gradients and the question that they answer."""

    w: Tensor | None = None
    objectives: Mapping[str, Loss] | None = None
    answers: Gradients | None = None


class KeepingAnswers(Wrapper):
    """A federation that keeps the last gradients, for a round that asks for them again.

    After a round without a step the next round asks the same question. Results do not depend on whether answers are
    kept, because clients would give the same answers again.
    """

    def __init__(self, inner: Federation) -> None:
        super().__init__(inner)
        self._kept = _Kept()  # shared with the wrapper of the next round

    def gradients(
        self,
        w: Tensor,
        objectives: Mapping[str, Loss],
        pseudo: Local | None = None,
        *,
        keep: bool = False,
        repeated: bool = False,
        **how: Any,
    ) -> Gradients:
        """Return the kept answers if the question is repeated and this process has them; ask otherwise."""
        kept = self._kept
        same = kept.w is not None and kept.objectives == dict(objectives) and torch.equal(kept.w, w)
        if repeated and same and kept.answers is not None:
            return kept.answers
        kept.w = kept.objectives = kept.answers = None  # free the old gradients before new ones arrive
        answers = self.inner.gradients(w, objectives, pseudo, keep=keep, repeated=repeated, **how)
        if keep and not answers.missing:
            kept.w, kept.objectives, kept.answers = w, dict(objectives), answers
        return answers


class Without(Wrapper):
    """A federation in which some clients can no longer be reached: they are known, and answer nothing."""

    def __init__(self, inner: Federation, gone: Sequence[str]) -> None:
        super().__init__(inner)
        self.gone = frozenset(gone)

    def foresee(self, w: Tensor, splits: Mapping[str, tuple[str, ...]]) -> bool:
        """Announce the evaluation of the others."""
        return self.inner.foresee(w, {i: names for i, names in splits.items() if i not in self.gone})

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        """Ask the others; a client that is gone fails."""
        here = {i: question for i, question in questions.items() if i not in self.gone}
        answers = self.inner.ask(here)
        for i in questions:
            yield next(answers) if i in here else (i, Failure("can no longer be reached"))


class Attendance(Wrapper):
    """A federation that records which clients were asked, and which gave at least one usable answer."""

    def __init__(self, inner: Federation) -> None:
        super().__init__(inner)
        self.asked: set[str] = set()
        self.answered: set[str] = set()

    def gradients(
        self, w: Tensor, objectives: Mapping[str, Loss], pseudo: Local | None = None, **how: Any
    ) -> Gradients:
        """Ask the inner federation, which may have kept the answers."""
        found = self.inner.gradients(w, objectives, pseudo, **how)
        self.asked |= set(objectives)
        self.answered |= set(found.ids)
        return found

    def _usable(self, questions: Mapping[str, Question], missing: Missing) -> Iterator[tuple[str, Answer]]:
        self.asked |= set(questions)
        for i, answer in super()._usable(questions, missing):
            self.answered.add(i)
            yield i, answer
