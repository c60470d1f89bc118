"""Federations around federations: what is remembered between questions has a class with a name here."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from fupareto.federation.collected import Gradients, Local, Missing
from fupareto.federation.contract import Federation
from fupareto.federation.questions import Answer, Question
from fupareto.federation.request import Request
from fupareto.tasks.losses import Loss


class Wrapper(Federation):
    """Another federation, to which everything is passed on; the base of those that add something."""

    def __init__(self, inner: Federation) -> None:
        self.inner = inner
        self.ids, self.layout, self.traffic = inner.ids, inner.layout, inner.traffic
        self.steps_per_question, self.packages, self.device = inner.steps_per_question, inner.packages, inner.device

    def around(self, inner: Federation) -> Self:
        """Return the same wrapper around another federation."""
        if inner is self.inner:
            return self
        other = copy.copy(self)
        Wrapper.__init__(other, inner)
        return other

    def at(self, round_: int) -> Federation:
        """Return the wrapper around the federation of a round."""
        return self.around(self.inner.at(round_))

    def divided(self, request: Request) -> Federation:
        """Return the wrapper around the federation with virtual clients."""
        return self.around(self.inner.divided(request))

    def session(self) -> AbstractContextManager[None]:
        """Return the session of the federation within."""
        return self.inner.session()

    def memory(self, clients: int, batch: int) -> int:
        """Return what the federation within takes."""
        return self.inner.memory(clients, batch)

    def fresh(self, seed: int) -> Tensor:
        """Return a newly initialised model of the federation within."""
        return self.inner.fresh(seed)

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        """Pass questions and answers on."""
        return self.inner.ask(questions)


@dataclass
class _Kept:
    """Gradients, with the question that they answer."""

    w: Tensor | None = None
    objectives: Mapping[str, Loss] | None = None
    answers: Gradients | None = None


class KeepingAnswers(Wrapper):
    """A federation whose last gradients are kept for a round that asks for them again.

    A round that did not move the model leaves the next one with the same question. Nothing depends on whether the
    answers were kept: clients would give them again.
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
        """Return what was kept, if the question is repeated and this process has the answers; ask otherwise."""
        kept = self._kept
        if repeated and kept.answers is not None and kept.w is w and kept.objectives == dict(objectives):
            return kept.answers
        kept.w = kept.objectives = kept.answers = None  # before new ones arrive: one copy of the gradients is enough
        answers = self.inner.gradients(w, objectives, pseudo, keep=keep, repeated=repeated, **how)
        if keep and not answers.missing:
            kept.w, kept.objectives, kept.answers = w, dict(objectives), answers
        return answers


class Attendance(Wrapper):
    """A federation that notes who was asked, and who gave at least one usable answer."""

    def __init__(self, inner: Federation) -> None:
        super().__init__(inner)
        self.asked: set[str] = set()
        self.answered: set[str] = set()

    def gradients(
        self, w: Tensor, objectives: Mapping[str, Loss], pseudo: Local | None = None, **how: Any
    ) -> Gradients:
        """Ask the federation within, which may have kept the answers."""
        found = self.inner.gradients(w, objectives, pseudo, **how)
        self.asked |= set(objectives)
        self.answered |= set(found.ids)
        return found

    def _usable(self, questions: Mapping[str, Question], missing: Missing) -> Iterator[tuple[str, Answer]]:
        self.asked |= set(questions)
        for i, answer in super()._usable(questions, missing):
            self.answered.add(i)
            yield i, answer
