"""Simulated engine: all clients in this process.

Clients run on a thread pool of one worker per core with one intra-op thread each; on a device other than the CPU, one
after the other in the caller's thread. Every answer depends only on the question, the client and its data, and answers
are combined in the order asked, so results do not depend on the number of workers.
"""

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.cores import usable_cores
from fupareto.errors import UserError
from fupareto.federation.collected import FLOAT, Traffic
from fupareto.federation.contract import Federation
from fupareto.federation.fresh import fresh_model
from fupareto.federation.questions import Answer, Failure, Question
from fupareto.federation.request import Request, Splits
from fupareto.federation.samples import check_dtype, checked, checked_names, fitted
from fupareto.parameters import Layout
from fupareto.tasks import Task
from fupareto.tasks.samples import CLASSES, Samples, batch_size

AHEAD = 32  # clients that may be asked before the first one has answered, so that a slow client does not block others
ROOM = 2**27  # bytes that waiting answers may take; at least two clients per worker are asked ahead
VECTORS = 5  # vectors of the model's size per worker: a module, its gradient, an answer, two of a trial step
BACKWARD = 1.75  # memory of a backward pass over that of the activations: 1.5 to 2 on the models of this package


class SimulatedFederation(Federation):
    """A federation whose clients run in threads of this process.

    Args:
        model: The model; its trainable weights are replaced by those of each question.
        clients: Splits (``train``, ``test``, …) by client id.
        workers: Number of threads; by default one per core. On a device other than the CPU there is one.
        fresh: Function from a seed to a newly initialised model; by default the modules' ``reset_parameters``.
        device: Device of data and models.
        task: What samples, outputs and losses are; by default one of several classes.
    """

    holds_answers = False
    steps_per_question = (
        1  # another question costs nothing here, and the line search can stop at the first accepted step
    )

    def __init__(
        self,
        model: nn.Module,
        clients: Mapping[str, Splits],
        workers: int | None = None,
        fresh: Callable[[int], nn.Module] | None = None,
        device: str | torch.device = "cpu",
        task: Task = CLASSES,
    ) -> None:
        if len(clients) < 2:
            raise UserError(f"a federation needs at least two clients, not {len(clients)}")
        self.device, self.task = usable(device), task
        self.ids = checked_names(clients)
        dtype = check_dtype(model)
        self._model = copy.deepcopy(model).to(self.device)
        self._model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        read = {i: checked(i, splits, self.device, task, dtype) for i, splits in clients.items()}
        self.clients: dict[str, dict[str, Any]] = dict(fitted(self._model, read))  # of Samples
        self.layout = Layout.of(model)
        self.traffic = Traffic()
        self._fresh = fresh
        self._local = threading.local()
        self.workers = 1 if self.device.type != "cpu" else workers or usable_cores()
        self._pool: ThreadPoolExecutor | None = None  # during a session on the CPU

    @contextmanager
    def session(self) -> Iterator[None]:
        """Return a context with a pool of workers, in which the caller's thread uses one intra-op thread.

        The caller's number of threads is restored when the session ends. A session within a session has no effect.
        """
        if self._pool is not None or self.device.type != "cpu":
            yield
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(
            self.workers, thread_name_prefix="client", initializer=torch.set_num_threads, initargs=(1,)
        )
        try:
            yield
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            torch.set_num_threads(threads)

    def fresh(self, seed: int) -> Tensor:
        """Return a newly initialised model, from the user's function ``fresh`` if it was given."""
        return fresh_model(self._model, self.layout, self._fresh, seed).to(self.device)

    def divided(self, request: Request) -> "SimulatedFederation":
        """Return the federation with virtual clients; the same federation for a request for whole clients."""
        return self.like(request.divide(self.clients)) if request.divides else self

    def like(self, clients: Mapping[str, Splits]) -> "SimulatedFederation":
        """Return a federation with the same model and other clients."""
        return SimulatedFederation(self._model, clients, self.workers, self._fresh, self.device, self.task)

    def judged(self, task: Task) -> "SimulatedFederation":
        """Return the federation with other options of the same task."""
        if task == self.task:
            return self
        return SimulatedFederation(self._model, self.clients, self.workers, self._fresh, self.device, task)

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        """Run the clients on the pool; an exception becomes a Failure with its message.

        The number of clients that are asked ahead is limited, so that waiting answers do not fill the memory.
        """
        with self.session():
            if self._pool is None:
                yield from ((i, self._answer(i, question)) for i, question in questions.items())
            else:
                yield from self._pooled(self._pool, questions)

    def _pooled(
        self, pool: ThreadPoolExecutor, questions: Mapping[str, Question]
    ) -> Iterator[tuple[str, Answer | Failure]]:
        """Yield answers in the order asked; the clients that are asked at first begin in the order of ``_rank``."""
        rest = iter(questions.items())
        waiting: dict[str, Future[Answer | Failure]] = {}

        def submit(count: int) -> None:
            some = list(itertools.islice(rest, count))
            begun = {i: pool.submit(self._answer, i, question) for i, question in sorted(some, key=self._rank)}
            waiting.update((i, begun[i]) for i, _ in some)

        submit(self._ahead)
        try:
            while waiting:
                i = next(iter(waiting))
                found = waiting.pop(i).result()
                yield i, found
                submit(1)  # not before: this answer may have spared the others
        finally:
            for future in waiting.values():
                future.cancel()

    def _rank(self, asked: tuple[str, Question]) -> int:
        """Return what clients are sorted by: those with most samples begin, or those asked first where order matters.

        A large client that begins last keeps one worker busy and the others idle.
        """
        client, question = asked
        return 0 if question.in_order else -len(self.clients[client].get("train", ()))

    @property
    def _ahead(self) -> int:
        return max(2 * self.workers, min(AHEAD, ROOM // (FLOAT * self.layout.size)))

    def memory(self, clients: int, batch: int) -> int:
        """Return the bytes of memory of the workers and of waiting answers."""
        samples = max((splits["train"] for splits in self.clients.values()), key=len)
        size = min(len(samples), max(batch, batch_size(samples.first(2).inputs, samples.width)))
        fixed, each = parameters.activations(self._model, lambda module, count: _pass(module, samples, count))
        vectors = 1 + VECTORS * self.workers + min(clients, self._ahead)
        return FLOAT * self.layout.size * vectors + int(BACKWARD * self.workers * (fixed + size * each))

    def _answer(self, client: str, question: Question) -> Answer | Failure:
        try:
            if not hasattr(self._local, "module"):
                self._local.module = copy.deepcopy(self._model)
            parameters.reset_counters(self._local.module, self._model)
            return question.answer(self._local.module, self.clients[client], client)
        except Exception as error:  # any error in a client is a Failure of that client
            return Failure(f"{type(error).__name__}: {error}")


def usable(device: str | torch.device) -> torch.device:
    """Return the device; raise UserError if it does not exist or does not support float64."""
    try:
        found = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=found)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"the device '{device}' cannot be used: {str(error).splitlines()[0]}") from error
    return found


def _pass(module: nn.Module, samples: Samples, count: int) -> tuple[Any, Any]:
    """Return the inputs of a forward pass with so many samples, repeated where there are fewer, and its outputs."""
    rows = torch.arange(count, device="cpu") % len(samples)
    batch = next(samples.take(rows).batches(count))
    return batch.inputs, samples.outputs(module, batch)
