"""Federation over a Flower Grid, with clients on other machines.

A question is a message, an answer its reply. Network faults (a node that is not connected, a timeout, an error, a reply
to another message) become a Failure with the reason; everything else is as in the other engines.
"""

import copy
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from torch import Tensor, nn

from fupareto.errors import UserError
from fupareto.federation.collected import Traffic
from fupareto.federation.contract import Federation
from fupareto.federation.fresh import fresh_model
from fupareto.federation.questions import (
    ANSWERS,
    Answer,
    Compare,
    Evaluate,
    Evaluated,
    Failure,
    Question,
    Signals,
    TrialLosses,
)
from fupareto.federation.questions.schema import clipped
from fupareto.federation.request import VIRTUAL, Request
from fupareto.federation.samples import check_dtype
from fupareto.flower.arrays import fingerprint
from fupareto.flower.foreseen import Foreseen
from fupareto.flower.membership import NONE, Membership
from fupareto.flower.nodes import MEETING, WHO, Nodes
from fupareto.flower.punctuality import Punctuality
from fupareto.flower.records import (
    Envelope,
    Lacking,
    carried,
    carry,
    kind_of,
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
        members: The clients by their keys; without it every node says itself which client it is.
        wait_for: Share of the clients that a question waits for, see punctuality.py.
        essential: Clients that are always waited for: those to be forgotten.
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
        members: Membership | None = None,
        wait_for: float = 1.0,
        essential: Collection[str] = (),
        fresh: Callable[[int], nn.Module] | None = None,
        task: Task | type[Task] | str | Mapping[str, Any] | None = None,
    ) -> None:
        check_dtype(model)
        self.layout, self.traffic = Layout.of(model), Traffic()
        self.task = task_of(task)
        self._spec = None if task is None else self.task.spec()  # what is sent
        self.times, self.patience = Punctuality(timeout, wait_for, essential), patience
        self.nodes = Nodes(grid, members)
        self.provenance = {"membership": members.told() if members else NONE}
        self.nodes.gather(clients, patience)
        self.ids = self.nodes.names
        self._model, self._fresh = model, fresh
        self._request: Request | None = None  # the request that divides the clients
        self._numbers = itertools.count(1)  # of messages
        self._round = 0
        self._foreseen = Foreseen()

    def foresee(self, w: Tensor, splits: Mapping[str, tuple[str, ...]]) -> bool:
        """Send the measurement together with the next question about the model, see foreseen.py."""
        self._foreseen.expect(w, splits)
        return True

    def fresh(self, seed: int) -> Tensor:
        """Return the vector of a newly initialised model, from the user's function if there is one."""
        return fresh_model(self._model, self.layout, self._fresh, seed)

    def at(self, round_: int) -> "FlowerFederation":
        """Return the same federation, with messages that carry the number of a round."""
        labelled = copy.copy(self)
        labelled._round = round_
        return labelled

    def divided(self, request: Request) -> "FlowerFederation":
        """Return the federation with the virtual clients of a request, which every node reports and answers for.

        Row numbers are sent only to the client whose rows they are.
        """
        if not request.divides:
            return self
        if unknown := [i for i in request.samples if i not in self.ids]:
            raise UserError(
                f"samples of client {', '.join(map(repr, unknown))} are to be forgotten, but the federation has "
                f"{', '.join(self.ids)}"
            )
        parts = copy.copy(self)
        parts._request = request
        here = [i for i in self.ids if i not in request.left]
        if lost := [i for i in here if i not in self.nodes.of]:
            raise UserError(
                f"client {', '.join(map(repr, lost))} is not connected, and so cannot say what data it has; start its "
                "node and try again"
            )
        messages = {
            i: Message(request_records(request.of(i), self._spec), self.nodes.of[i], WHO, ttl=MEETING + SLACK)
            for i in here
        }
        replies = self.nodes.send(messages, MEETING)
        parts.ids = tuple(name for i in here for name in _held_by(i, replies.get(i), request))
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
        found = self._foreseen.taken(questions)
        if rest := {i: question for i, question in questions.items() if i not in found}:
            found |= self._answers(rest)
        yield from ((i, found[i]) for i in questions)

    def _answers(self, questions: Mapping[str, Question]) -> dict[str, Answer | Failure]:
        """Send questions, with an announced measurement of the same model, and return the answers."""
        riders, others = self._foreseen.depart(questions)
        sent: dict[str, Question] = {**questions, **others}
        self.nodes.find(map(owner, sent), self.patience)
        known = {i: fingerprint(q.w) for i, q in questions.items() if isinstance(q, TrialLosses)}
        found = self._exchange(sent, known, riders)
        if lacking := {i: questions[i] for i, answer in found.items() if isinstance(answer, Lacking)}:
            found |= self._exchange(lacking, {}, riders)  # these clients no longer have the model: send it again
        lost = Failure("does not have the model of this round")
        answers = {i: lost if isinstance(answer, Lacking) else answer for i, answer in found.items()}
        self._foreseen.answers |= {i: answers.pop(i) for i in others}
        return answers

    def _exchange(
        self, questions: Mapping[str, Question], known: Mapping[str, str], riders: Mapping[str, Evaluate]
    ) -> dict[str, Answer | Failure | Lacking]:
        """Send questions and return the answers; models with a fingerprint in ``known`` are not sent.

        Answers to ``riders``, measurements that travel with the questions, are kept.
        """
        number = next(self._numbers)
        envelopes = {i: Envelope(self._round, number, i) for i in questions}
        rested = {i: why for i, q in questions.items() if (why := self._rested(i, q))}
        messages = {
            i: self._message(question, envelopes[i], known.get(i), riders.get(i))
            for i, question in questions.items()
            if owner(i) in self.nodes.of and i not in rested
        }
        started, deadline = time.monotonic(), self.times.deadline({i: kind_of(m) for i, m in messages.items()})
        replies = self.nodes.send(messages, deadline, self.times)
        waited = min(deadline, time.monotonic() - started)
        self.nodes.unresponsive -= {owner(i) for i in messages}
        self.nodes.unresponsive |= {owner(i) for i in questions if i not in replies or replies[i].has_error()}
        found: dict[str, Answer | Failure | Lacking] = {}
        for i in questions:
            if i in replies:
                found[i] = _read(replies[i], envelopes[i])
                if i in riders and not isinstance(found[i], Failure | Lacking):
                    self._foreseen.answers |= _measured(i, replies[i])
                continue
            if i in messages:
                self.times.missed(i)
            silent = f"did not answer within {round(waited, 1):g} seconds" if i in messages else "is not connected"
            found[i] = Failure(rested.get(i, silent))
        return found

    def _message(self, question: Question, envelope: Envelope, known: str | None, rider: Evaluate | None) -> Message:
        """Return the message of a question, and of a measurement of the same model."""
        content = question_records(question, envelope, self._of(envelope.client), known, self._spec)
        if rider is not None:
            carry(content, "measure", {"splits": rider.splits})
        return Message(
            content,
            self.nodes.of[owner(envelope.client)],
            MESSAGES.get(type(question), TRAIN),
            group_id=str(self._round),
            ttl=self.times.timeout + SLACK,
        )

    def _rested(self, i: str, question: Question) -> str | None:
        """Return why a client that misses many questions is not asked; measurements and trial steps ask everybody."""
        return self.times.rested(i, self._round) if MESSAGES.get(type(question), TRAIN) == TRAIN else None

    def _of(self, i: str) -> Request | None:
        """Return the part of the request that concerns a client."""
        return self._request.of(owner(i)) if self._request else None


def owner(i: str) -> str:
    """Return the client whose node answers for ``i``: the client itself, or that of a virtual client."""
    return i.removesuffix(VIRTUAL)


def _held_by(i: str, reply: Message | None, request: Request) -> list[str]:
    """Return the ids that the node of a client answers for: none where earlier requests took all of its data.

    Raises:
        UserError: If the node did not answer, refuses the request, or answers for others.
    """
    found, refused = read_here(reply.content) if reply is not None and reply.has_content() else (None, "")
    if refused:
        raise UserError(refused)
    earlier = request.of(i)
    if found is None or not (found or earlier.left_samples or earlier.left_classes):
        what = request.words() or "training samples left"
        raise UserError(f"client '{i}' did not answer whether it has {what}; check its node and try again")
    if set(found) - {i, f"{i}{VIRTUAL}"}:
        raise UserError(f"client '{i}' answers for {', '.join(found)}; a node answers for its own client alone")
    return found


def _measured(i: str, reply: Message) -> dict[str, Answer | Failure]:
    """Return the measurement that a reply carries, by its client; empty without one, which is then asked for."""
    found = carried(reply.content, "measured")
    return {i: Evaluated(counts=found["counts"])} if "counts" in found else {}


def _read(reply: Message, envelope: Envelope) -> Answer | Failure | Lacking:
    """Return the answer in a reply, or a Failure where it has none or does not match the envelope."""
    try:
        if reply.has_error():
            return Failure(clipped(f"failed with error {reply.error.code}: {str(reply.error.reason)[:1000]}"))
        about, answer = read_envelope(reply.content), read_answer(REPLIES, reply.content)
    except Exception as error:  # whatever a node sends is a failure of its client
        return Failure(clipped(f"answered with something malformed: {error}"))
    if about != envelope:
        return Failure(
            f"answered message {about.number} of round {about.round} for client '{clipped(about.client, 60)}', not "
            f"message {envelope.number} of round {envelope.round}"
        )
    found: Answer | Failure | Lacking = answer
    return found
