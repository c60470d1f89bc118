"""Clients on other machines: the same questions over a Flower Grid.

A question is a message, an answer its reply. What may go wrong on a network (nobody there, no answer in time, an error,
an answer to something else) becomes a Failure with the reason; everything behind it is as in any other engine.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from torch import Tensor, nn

from fupareto import parameters
from fupareto.errors import UserError
from fupareto.federation.collected import Traffic
from fupareto.federation.contract import Federation
from fupareto.federation.questions import ANSWERS, Answer, Evaluate, Failure, Predict, Question, TrialLosses
from fupareto.federation.request import VIRTUAL, Request
from fupareto.flower.nodes import MEETING, WHO, Nodes
from fupareto.flower.records import (
    Envelope,
    Lacking,
    fingerprint,
    question_records,
    read_answer,
    read_envelope,
    read_here,
    request_records,
)
from fupareto.parameters import Layout

TRAIN = "train.unlearn"  # every question but these:
MESSAGES: dict[type, str] = {TrialLosses: "query.loss", Predict: "query.outputs", Evaluate: "evaluate.unlearn"}
SLACK = 60.0  # seconds a message lives beyond the time in which its answer is waited for
REPLIES: dict[str, type[Any]] = {**ANSWERS, Lacking.__name__: Lacking}


class FlowerFederation(Federation):
    """The nodes of a Grid, by the names of their clients.

    The run begins once ``clients`` of them are there. ``timeout`` is how many seconds an answer may take, ``patience``
    how long nobody at all may be connected. One that comes back as another node is found when it is asked next.
    """

    packages = ("flwr",)

    def __init__(
        self,
        grid: Grid,
        model: nn.Module,
        *,
        clients: int,
        timeout: float = 600.0,
        patience: float = 300.0,
        fresh: Callable[[int], nn.Module] | None = None,
    ) -> None:
        self.layout, self.traffic = Layout.of(model), Traffic()
        self.timeout, self.patience = timeout, patience
        self.nodes = Nodes(grid)
        self.nodes.gather(clients, patience)
        self.ids = self.nodes.names
        self._model, self._fresh = model, fresh
        self._request: Request | None = None  # by which clients are divided
        self._numbers = itertools.count(1)  # of messages
        self._round = 0

    def fresh(self, seed: int) -> Tensor:
        """Return a newly initialised model, from the user's function if there is one."""
        return parameters.read(self._fresh(seed)) if self._fresh else parameters.reinitialised(self._model, seed)

    def at(self, round_: int) -> "FlowerFederation":
        """Return the federation whose messages carry the number of a round."""
        labelled = copy.copy(self)
        labelled._round = round_
        return labelled

    def divided(self, request: Request) -> "FlowerFederation":
        """Return the federation with virtual clients: every node says which it has, and answers for them.

        Row numbers are sent to the client whose rows they are, and to nobody else.
        """
        if not request.partial:
            return self
        if unknown := [i for i in request.samples if i not in self.ids]:
            raise UserError(
                f"samples of client {', '.join(map(repr, unknown))} are to be forgotten, but the federation has "
                f"{', '.join(self.ids)}"
            )
        parts = copy.copy(self)
        parts._request = request
        here = [i for i in self.ids if i not in request.left]
        messages = {
            i: Message(request_records(request.of(i)), self.nodes.of[i], WHO, ttl=MEETING + SLACK) for i in here
        }
        replies = self.nodes.send(messages, MEETING)
        ids: list[str] = []
        for i in here:
            found, refused = read_here(replies[i].content) if i in replies and replies[i].has_content() else ([], "")
            if refused:
                raise UserError(refused)
            if not found:
                raise UserError(f"client '{i}' did not say whether it holds {request.words()}; try again when it does")
            ids += found
        parts.ids = tuple(ids)
        return parts

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        """Send every question at once, wait for the answers, and yield them in the order asked."""
        self.nodes.find(map(owner, questions), self.patience)
        known = {i: fingerprint(q.w) for i, q in questions.items() if isinstance(q, TrialLosses)}
        found = self._exchange(questions, known)
        if lacking := {i: questions[i] for i, answer in found.items() if isinstance(answer, Lacking)}:
            found |= self._exchange(lacking, {})  # a client that lost what it was to keep is sent everything
        for i in questions:
            answer = found[i]
            yield i, Failure("lost the model of this round") if isinstance(answer, Lacking) else answer

    def _exchange(
        self, questions: Mapping[str, Question], known: Mapping[str, str]
    ) -> dict[str, Answer | Failure | Lacking]:
        number = next(self._numbers)
        envelopes = {i: Envelope(self._round, number, i) for i in questions}
        messages = {
            i: Message(
                question_records(question, envelopes[i], self._of(i), known.get(i)),
                self.nodes.of[owner(i)],
                MESSAGES.get(type(question), TRAIN),
                group_id=str(self._round),
                ttl=self.timeout + SLACK,
            )
            for i, question in questions.items()
            if owner(i) in self.nodes.of
        }
        replies = self.nodes.send(messages, self.timeout)
        self.nodes.silent -= {owner(i) for i in questions}
        self.nodes.silent |= {owner(i) for i in questions if i not in replies or replies[i].has_error()}
        found: dict[str, Answer | Failure | Lacking] = {}
        for i in questions:
            if i not in messages:
                found[i] = Failure("is not connected")
            elif i not in replies:
                found[i] = Failure(f"did not answer within {self.timeout:g} seconds")
            else:
                found[i] = _read(replies[i], envelopes[i])
        return found

    def _of(self, i: str) -> Request | None:
        return self._request.of(owner(i)) if self._request else None


def owner(i: str) -> str:
    """Return whose node answers: the client itself, also for the part of it that must go."""
    return i.removesuffix(VIRTUAL)


def _read(reply: Message, envelope: Envelope) -> Answer | Failure | Lacking:
    if reply.has_error():
        return Failure(f"failed with error {reply.error.code}: {reply.error.reason}")
    try:
        about, answer = read_envelope(reply.content), read_answer(REPLIES, reply.content)
    except ValueError as error:
        return Failure(f"answered with something malformed: {error}")
    if about != envelope:
        return Failure(
            f"answered message {about.number} of round {about.round} for client '{about.client}', not message "
            f"{envelope.number} of round {envelope.round}"
        )
    found: Answer | Failure | Lacking = answer
    return found
