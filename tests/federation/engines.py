"""Two more engines: one that shares nothing with its clients but bytes, one whose clients misbehave."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from fupareto import serial
from fupareto.federation import Federation
from fupareto.federation.collected import Traffic
from fupareto.federation.questions import ANSWERS, QUESTIONS, Answer, Failure, Question
from fupareto.federation.request import Splits
from fupareto.parameters import Layout

Reply = Answer | Failure
Fault = Callable[[Question, Reply], Reply]


class BytesFederation(Federation):
    """Every question meets a new client (model built again, data copied); questions and answers travel as bytes.

    All trial steps travel in one question, as over a network.
    """

    steps_per_question = None

    def __init__(self, model: Callable[[], nn.Module], clients: Mapping[str, Splits]) -> None:
        self.ids = tuple(clients)
        self.layout = Layout.of(model())
        self.traffic = Traffic()
        self.messages = 0
        self._model = model
        self._clients = clients
        self._pool = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Reply]]:
        for i, question in questions.items():
            self.messages += 1
            reply = self._pool.submit(self._client, i, serial.to_bytes(question)).result()
            yield i, serial.from_bytes(ANSWERS, reply)

    def _client(self, client: str, message: bytes) -> bytes:
        try:
            return serial.to_bytes(self._answer(client, message))
        except Exception as error:  # whatever a client's code raises is that client's failure
            return serial.to_bytes(Failure(f"{type(error).__name__}: {error}"))

    def _answer(self, client: str, message: bytes) -> Answer:
        module = self._model().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        splits = {name: (_copy(s[0]), s[1].clone()) for name, s in self._clients[client].items()}
        return serial.from_bytes(QUESTIONS, message).answer(module, splits, client)


def _copy(x: torch.Tensor) -> torch.Tensor:
    layout = torch.channels_last if x.dim() == 4 else torch.contiguous_format
    return x.clone(memory_format=layout)


class FaultyFederation(Federation):
    """Another engine, in which the answers of chosen clients pass through a fault first."""

    def __init__(self, inner: Federation, faults: Mapping[str, Fault]) -> None:
        self.inner, self.faults = inner, faults
        self.ids, self.layout, self.traffic = inner.ids, inner.layout, inner.traffic
        self.steps_per_question = inner.steps_per_question

    def fresh(self, seed: int) -> torch.Tensor:
        return self.inner.fresh(seed)

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Reply]]:
        for i, reply in self.inner.ask(questions):
            yield i, self.faults[i](questions[i], reply) if i in self.faults else reply


def silent(question: Question, reply: Reply) -> Reply:
    return Failure("no answer in time")


def always(wrong: Reply) -> Fault:
    return lambda question, reply: wrong


def only(kind: type[Question], fault: Fault) -> Fault:
    """The fault strikes at one type of question alone."""
    return lambda question, reply: fault(question, reply) if isinstance(question, kind) else reply
