"""Where does a FUPareto round spend its time, and how much more is it than the passes over data that it needs?

    python benchmarks/fupareto_round.py [--tiny] [--out benchmarks/fupareto_round.json]

LeNet-5, 20 clients, 5 of them to be forgotten. Rounds go through ``FUPareto.step``; the functions that matter are
wrapped from outside. What the server waits for is the clients' gradient and loss passes; the rest is the server's own:
the Gram matrix, the direction, the combination of gradients, and everything else (copying and checking answers,
records). The bare passes are the same forward and backward passes over the same batches on as many threads, and
nothing else: no questions, no vectors of weights, no checks.
"""

import argparse
import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import cases
import fupareto.methods.fupareto.method as method
from common import RESULTS, interleaved, ratios, seconds, spread, write
from fupareto import models, parameters
from fupareto.federation import Request, SimulatedFederation
from fupareto.federation.local import batches
from fupareto.federation.questions import Answer, Failure, Gradient, Question, TrialLosses
from fupareto.methods.fupareto import objectives, search
from fupareto.methods.fupareto.method import FUPareto, FUParetoState
from fupareto.methods.registry import find

SHAPE = (1, 28, 28)
CORES = os.cpu_count() or 1
SERVER = ("gram", "direction", "combination", "bookkeeping")
PARTS = ("gradients", "losses", *SERVER)


class Watched(SimulatedFederation):
    """The simulated engine; it notes what was really asked of whom, and how long the server waited."""

    def __init__(self, *arguments: Any, failing: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.failing = set(failing)
        self.waited = {"gradients": 0.0, "losses": 0.0}
        self.asked: list[list[tuple[str, Question]]] = []

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        self.asked.append([])
        part = "gradients" if isinstance(next(iter(questions.values())), Gradient) else "losses"
        answers = super().ask(questions)
        while True:
            start = time.perf_counter()
            try:
                answer = next(answers)
            except StopIteration:
                return
            finally:
                self.waited[part] += time.perf_counter() - start
            yield answer

    def _answer(self, client: str, question: Question) -> Answer | Failure:
        if client in self.failing:
            return Failure("as the benchmark wants it")
        self.asked[-1].append((client, question))  # only what began: a veto cancels the others
        return super()._answer(client, question)


@contextmanager
def stopwatches(spent: dict[str, float]) -> Iterator[None]:
    """Time the server's functions from outside, for as long as the context lasts."""

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                spent[part] += time.perf_counter() - start

        return wrapper

    wrapped = [
        (objectives, "gram", "gram"),
        (search, "combine", "combination"),
        (FUPareto, "_improvement_hull", "direction"),
        (FUPareto, "_descent", "direction"),
        (method, "expansion_hull", "direction"),
    ]
    patches = [mock.patch.object(owner, name, timed(part, getattr(owner, name))) for owner, name, part in wrapped]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


class Bare:
    """The same passes over data without questions, answers and server; every thread has a model."""

    def __init__(self, federation: Watched) -> None:
        self.federation = federation
        self.pool = ThreadPoolExecutor(federation.workers, initializer=torch.set_num_threads, initargs=(1,))
        self.local = threading.local()

    def __call__(self, asked: list[list[tuple[str, Question]]]) -> None:
        for together in asked:
            list(self.pool.map(lambda pair: self._pass(*pair), together))

    def _pass(self, client: str, question: Question) -> None:
        if not hasattr(self.local, "module"):
            module = models.build("lenet5", SHAPE, 10, seed=0).eval()
            self.local.module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module = self.local.module
        assert isinstance(question, Gradient | TrialLosses)
        x, y = self.federation.clients[client]["train"]
        with torch.set_grad_enabled(isinstance(question, Gradient)):
            for batch_x, batch_y in batches(x, y):
                loss = question.loss(module(batch_x), batch_y).sum()
                if loss.requires_grad:
                    loss.backward()  # type: ignore[no-untyped-call]
        module.zero_grad(set_to_none=True)


@dataclasses.dataclass
class Round:
    """One kind of round, to be repeated from the same state: its times, part by part, and its bare passes' times."""

    federation: Watched
    method: FUPareto
    state: FUParetoState
    parts: list[dict[str, float]] = dataclasses.field(default_factory=list)
    after: FUParetoState | None = None

    def whole(self) -> float:
        """Do the round once more."""
        spent = dict.fromkeys(PARTS, 0.0)
        self.federation.asked, self.federation.waited = [], {"gradients": 0.0, "losses": 0.0}
        state = dataclasses.replace(self.state, w=self.state.w.clone())  # a model that moved: nothing is known of it
        with stopwatches(spent):
            start = time.perf_counter()
            self.after = self.method.step(self.federation, state)
            total = time.perf_counter() - start
        spent |= self.federation.waited
        spent["bookkeeping"] = total - sum(spent.values())
        self.parts.append(spent)
        return total

    def bare(self, passes: Bare) -> float:
        """Repeat the passes of the last round."""
        asked = list(self.federation.asked)
        return seconds(lambda: passes(asked))


def guard(**options: Any) -> FUPareto:
    """Return FUPareto without renewal: the rounds that are measured are those of improvement and expansion."""
    found = find("fupareto:guard", options)
    assert isinstance(found, FUPareto)
    return found


def kinds(samples: int) -> dict[str, Round]:
    """Return rounds of every kind: steps accepted, all refused, expansion, recovery, clients that fail."""
    model = models.build("lenet5", SHAPE, 10, seed=0)
    held = {str(i): cases.client(SHAPE, samples, i) for i in range(20)}
    data = {i: {"train": c, "test": (c[0][:1], c[1][:1])} for i, c in held.items()}
    federation = Watched(model, data, workers=CORES)
    ill = Watched(model, data, workers=CORES, failing=("2", "11", "19"))
    request = Request(clients=("0", "1", "2", "3", "4"))
    usual, refused = guard(), guard(lr=1e6)
    state = usual.init(federation, parameters.read(model), request)
    last = guard(rounds=1)
    return {
        "improvement": Round(federation, usual, state),
        "improvement, every step refused": Round(federation, refused, refused.init(federation, state.w, request)),
        "expansion": Round(federation, usual, dataclasses.replace(state, expand_next=True)),
        "recovery": Round(federation, last, last.step(federation, state)),
        "improvement, 3 of 20 clients fail": Round(ill, usual, state),
    }


def summary(kind: Round, whole: list[float], bare: list[float]) -> dict[str, Any]:
    assert kind.after is not None
    parts = kind.parts[-len(whole) :]
    shares = {part: spread([p[part] / t for p, t in zip(parts, whole, strict=True)]) for part in PARTS}
    asked = [question for together in kind.federation.asked for _, question in together]
    return {
        "phase": kind.after.phase,
        "step": kind.after.record["step"],
        "steps_tried": len(kind.after.record["tried"]),
        "missing": len(kind.after.record["missing"]),
        "seconds": spread(whole),
        "bare_seconds": spread(bare),
        "times_the_bare_passes": ratios(whole, bare),
        "share": shares,
        "server_share": spread([sum(p[s] for s in SERVER) / t for p, t in zip(parts, whole, strict=True)]),
        "gradient_passes": sum(isinstance(question, Gradient) for question in asked),
        "loss_passes": sum(isinstance(question, TrialLosses) for question in asked),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "fupareto_round.json")
    chosen = parser.parse_args(arguments)
    samples, repeats = (10, 2) if chosen.tiny else (2000, 3)
    found = {}
    for name, kind in kinds(samples).items():
        print(f"{name}:", flush=True)
        passes = Bare(kind.federation)
        contenders: dict[str, Callable[[], float]] = {
            "round": kind.whole,
            "bare passes": functools.partial(kind.bare, passes),
        }
        interleaved(contenders, 1)  # warm-up
        times = interleaved(contenders, repeats)
        found[name] = summary(kind, times["round"], times["bare passes"])
    write(chosen.out, {"clients": 20, "forget": 5, "samples": samples, "repeats": repeats, "rounds": found})


if __name__ == "__main__":
    main()
