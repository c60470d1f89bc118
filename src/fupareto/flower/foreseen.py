"""A measurement that is known to follow, and travels with the next question about the same model.

A message takes a deployment seconds whatever it contains, and the next round asks about the model that the last one
ended with. So the loop announces the measurement (``Federation.foresee``), the next question about that model carries
it, and clients that this question leaves out are sent it at the same time. The answers wait here until the loop asks
for them. A client that has not answered by then is asked as usual, so that faults are treated as without this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fupareto.federation.questions import Answer, Evaluate, Failure, Question


@dataclass
class Foreseen:
    """The announced measurement.

    Attributes:
        questions: The measurement, by client.
        due: Clients to whom it has not been sent.
        answers: Answers that have arrived.
    """

    questions: dict[str, Evaluate] = field(default_factory=dict)
    due: set[str] = field(default_factory=set)
    answers: dict[str, Answer | Failure] = field(default_factory=dict)

    def expect(self, w: Tensor, splits: Mapping[str, tuple[str, ...]]) -> None:
        """Announce the measurement of a model; an earlier one is dropped."""
        self.questions = {i: Evaluate(w, names) for i, names in splits.items()}
        self.due, self.answers = set(splits), {}

    def taken(self, questions: Mapping[str, Question]) -> dict[str, Answer | Failure]:
        """Return the answers to those questions that are the announced ones and were answered; each once."""
        asked = {i for i, question in questions.items() if self._announced(i, question)}
        self.due -= asked
        return {i: self.answers.pop(i) for i in asked if i in self.answers}

    def depart(self, questions: Mapping[str, Question]) -> tuple[dict[str, Evaluate], dict[str, Evaluate]]:
        """Return the measurements that travel with questions, and those of clients without a question; each once.

        Nothing travels with questions about another model.
        """
        riders = {
            i: self.questions[i] for i, question in questions.items() if i in self.due and self._fits(i, question)
        }
        others = {i: self.questions[i] for i in self.questions if i in self.due and i not in questions}
        if not riders:
            return {}, {}
        self.due -= {*riders, *others}
        return riders, others

    def _announced(self, i: str, question: Question) -> bool:
        known = self.questions.get(i)
        return isinstance(question, Evaluate) and known is not None and _equal(question, known)

    def _fits(self, i: str, question: Question) -> bool:
        return _same(getattr(question, "w", None), self.questions[i].w)


def _equal(a: Evaluate, b: Evaluate) -> bool:
    return a.splits == b.splits and _same(a.w, b.w)


def _same(a: Any, b: Tensor) -> bool:
    return a is b or (isinstance(a, Tensor) and torch.equal(a, b))
