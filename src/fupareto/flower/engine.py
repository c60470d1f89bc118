"""Federation over a Flower Grid, with clients on other machines.

A question is a message, an answer its reply. Network faults (a node that is not connected, a timeout, an error, a reply
to another message) become a Failure with the reason; everything else is as in the other engines.
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
from fupareto.federation.questions import ANSWERS, Answer, Compare, Evaluate, Failure, Question, Signals, TrialLosses
from fupareto.federation.request import VIRTUAL, Request
from fupareto.federation.samples import check_dtype
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
from fupareto.tasks import Task, task_of

TRAIN = "train.unlearn"  # message type of every question but these:
MESSAGES: dict[type, str] = {
    TrialLosses: "query.loss",
    Signals: "query.signals",
    Compare: "query.signals",
    Evaluate: "evaluate.unlearn",
}
SLACK = 60.0  # seconds by which the lifetime of a message exceeds the timeout of its answer
REPLIES: dict[str, type[Any]] = {**ANSWERS, Lacking.__name__: Lacking}


class FlowerFederation(Federation):
    """Federation of the nodes of a Flower Grid.

    A client that reconnects as another node is found again at its next question.

    Args:
        grid: The grid.
        model: The model that clients train.
        clients: Number of clients that must be connected before the run starts.
        timeout: Seconds that an answer may take.
        patience: Seconds to wait for clients at the start, and when no client is connected.
        fresh: Function of a seed that returns a newly initialised model; by default the layers of ``model`` are reset.
        task: What samples, outputs and losses are, as in :func:`fupareto.simulate`. It is sent with every question; a
            node that was started with another task refuses it. None leaves it to the nodes.
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
        task: Task | type[Task] | str | Mapping[str, Any] | None = None,
    ) -> None:
        check_dtype(model)
        self.layout, self.traffic = Layout.of(model), Traffic()
        self.task = task_of(task)
        self._spec = None if task is None else self.task.spec()  # what is sent
        self.timeout, self.patience = timeout, patience
        self.nodes = Nodes(grid)
        self.nodes.gather(clients, patience)
        self.ids = self.nodes.names
        self._model, self._fresh = model, fresh
        self._request: Request | None = None  # the request that divides the clients
        self._numbers = itertools.count(1)  # of messages
        self._round = 0

    def fresh(self, seed: int) -> Tensor:
        """Return the vector of a newly initialised model, from the user's function if there is one."""
        return parameters.read(self._fresh(seed)) if self._fresh else parameters.reinitialised(self._model, seed)

    def at(self, round_: int) -> "FlowerFederation":
        """Return the same federation, with messages that carry the number of a round."""
        labelled = copy.copy(self)
        labelled._round = round_
        return labelled

    def divided(self, request: Request) -> "FlowerFederation":
        """Return the federation with the virtual clients of a request, which every node reports and answers for.

        Row numbers are sent only to the client whose rows they are.
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
            i: Message(request_records(request.of(i), self._spec), self.nodes.of[i], WHO, ttl=MEETING + SLACK)
            for i in here
        }
        replies = self.nodes.send(messages, MEETING)
        ids: list[str] = []
        for i in here:
            found, refused = read_here(replies[i].content) if i in replies and replies[i].has_content() else ([], "")
            if refused:
                raise UserError(refused)
            if not found:
                raise UserError(
                    f"client '{i}' did not answer whether it has {request.words()}; check its node and try again"
                )
            ids += found
        parts.ids = tuple(ids)
        return parts

    def judged(self, task: Task) -> "FlowerFederation":
        """Return the federation with other options of the same task, which are sent with every question."""
        if task == self.task:
            return self
        other = copy.copy(self)
        other.task, other._spec = task, task.spec()
        return other

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        """Send all questions at once, wait for the answers, and yield them in the order of the questions."""
        self.nodes.find(map(owner, questions), self.patience)
        known = {i: fingerprint(q.w) for i, q in questions.items() if isinstance(q, TrialLosses)}
        found = self._exchange(questions, known)
        if lacking := {i: questions[i] for i, answer in found.items() if isinstance(answer, Lacking)}:
            found |= self._exchange(lacking, {})  # these clients no longer have the model: send it again
        for i in questions:
            answer = found[i]
            yield i, Failure("does not have the model of this round") if isinstance(answer, Lacking) else answer

    def _exchange(
        self, questions: Mapping[str, Question], known: Mapping[str, str]
    ) -> dict[str, Answer | Failure | Lacking]:
        """Send questions and return the answers; models with a fingerprint in ``known`` are not sent."""
        number = next(self._numbers)
        envelopes = {i: Envelope(self._round, number, i) for i in questions}
        messages = {
            i: Message(
                question_records(question, envelopes[i], self._of(i), known.get(i), self._spec),
                self.nodes.of[owner(i)],
                MESSAGES.get(type(question), TRAIN),
                group_id=str(self._round),
                ttl=self.timeout + SLACK,
            )
            for i, question in questions.items()
            if owner(i) in self.nodes.of
        }
        replies = self.nodes.send(messages, self.timeout)
        self.nodes.unresponsive -= {owner(i) for i in questions}
        self.nodes.unresponsive |= {owner(i) for i in questions if i not in replies or replies[i].has_error()}
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
        """Return the part of the request that concerns a client."""
        return self._request.of(owner(i)) if self._request else None


def owner(i: str) -> str:
    """Return the client whose node answers for ``i``: the client itself, or that of a virtual client."""
    return i.removesuffix(VIRTUAL)


def _read(reply: Message, envelope: Envelope) -> Answer | Failure | Lacking:
    """Return the answer in a reply, or a Failure where it has none or does not match the envelope."""
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
