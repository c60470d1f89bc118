"""One client lies: what it does to training and to FUPareto, with and without the rules that limit it.

    python benchmarks/attacks.py [--out results/attacks.json] [--seeds 21 22 23]

The demo's digits. In training, one client lies in every round, and nobody is to be forgotten. In unlearning without
renewal, where clients have the longest say, one of the ten lies and two are to be forgotten. "Off" is the same run
without the rules of federation/averaging.py and methods/fupareto/conduct.py.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

from torch import Tensor

from fupareto.config import Experiment
from fupareto.experiment.setting import default_request, federation
from fupareto.federation import Federation, averaging
from fupareto.federation.questions import Gradient, LossAndGradient, Losses, Question, Trained
from fupareto.federation.wrappers import Wrapper
from fupareto.methods import FedAvg, Method, State
from fupareto.methods.fupareto import conduct
from fupareto.methods.registry import find
from fupareto.tasks.losses import Loss
from fupareto.versions import versions

OUT = Path(__file__).parents[1] / "results" / "attacks.json"
ROUNDS = 36
AVERAGES: tuple[tuple[str, averaging.Aggregation, bool], ...] = (
    ("mean, off", "mean", False),
    ("mean", "mean", True),
    ("trimmed", "trimmed", True),
    ("median", "median", True),
)
Reply = Any
Lie = Callable[[Question, Reply], Reply]


class Lying(Wrapper):
    """A federation in which one client's answers are replaced."""

    def __init__(self, inner: Federation, liar: str, lie: Lie) -> None:
        super().__init__(inner)
        self.liar, self.lie = liar, lie

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Reply]]:
        """Ask all clients, and let the liar lie."""
        for i, reply in self.inner.ask(questions):
            yield i, self.lie(questions[i], reply) if i == self.liar else reply


def update_times(factor: float) -> Lie:
    def lie(question: Question, reply: Reply) -> Reply:
        if not isinstance(reply, Trained):
            return reply
        base: Tensor = question.w  # type: ignore[attr-defined]
        return Trained(base + factor * (reply.w - base), reply.size)

    return lie


def claims(size: int) -> Lie:
    return lambda question, reply: replace(reply, size=size) if isinstance(reply, Trained) else reply


def vetoes(question: Question, reply: Reply) -> Reply:
    return Losses((1e9,) * len(reply.losses)) if isinstance(reply, Losses) else reply


def gradient_times(factor: float) -> Lie:
    def lie(question: Question, reply: Reply) -> Reply:
        return replace(reply, gradient=factor * reply.gradient) if isinstance(reply, LossAndGradient) else reply

    return lie


def loss_is(value: float) -> Lie:
    return lambda question, reply: replace(reply, loss=value) if isinstance(reply, LossAndGradient) else reply


def shields(honest: Federation, forget: Sequence[str]) -> Lie:
    """Return a lie of a client that knows the forget clients' gradients, and sends minus their sum as its own."""

    def lie(question: Question, reply: Reply) -> Reply:
        if not isinstance(question, Gradient) or not isinstance(reply, LossAndGradient):
            return reply
        found = honest.gradients(question.w, dict.fromkeys(forget, Loss("mbs")))
        return replace(reply, gradient=-found.gradients.sum(0), steps=1)

    return lie


@contextmanager
def rules(on: bool) -> Iterator[None]:
    """Switch the limits of averages, the bounds of gradients and the trial of FUPareto off."""
    off: dict[Any, dict[str, float]] = {
        averaging: {"FAR_LENGTH": math.inf, "FAR_SIZE": math.inf},
        conduct: {"FAR": math.inf, "FAR_ACROSS": math.inf, "FAR_LOSS": math.inf, "MOST_ACCUSED": 0.0},
    }
    with ExitStack() as stack:
        for module, values in off.items():
            for name, value in values.items() if not on else ():
                stack.enter_context(patch.object(module, name, value))
        yield


def run(method: Method, clients: Federation, w: Tensor, request: Any, seed: int) -> list[State]:
    """Return the states of all rounds."""
    states = [method.init(clients, w, request, seed)]
    while not states[-1].done:
        states.append(method.step(clients.at(states[-1].round), states[-1]))
    return states


def accuracy(clients: Federation, w: Tensor, ids: Sequence[str], split: str = "test") -> float:
    found = clients.evaluate(w, tuple(ids), (split,))
    return fmean(found.accuracy(i, split) or 0.0 for i in ids)


@dataclass(frozen=True)
class Sides:
    """The forget and the retained clients that do not lie."""

    forget: Sequence[str]
    retained: Sequence[str]

    def measured(self, clients: Federation, w: Tensor) -> dict[str, Any]:
        """Return how well their marks still work, and their accuracy."""
        return {
            "asr": accuracy(clients, w, self.forget, "trigger"),
            "r_acc": accuracy(clients, w, self.retained),
        }


def of_training(seed: int) -> list[dict[str, Any]]:
    """Return the accuracy of the honest clients after a training in which the last client lies."""
    clients, w = federation(Experiment.model_validate({"seed": seed, "backdoor": {"enabled": False}}))
    liar, found = clients.ids[-1], []
    lies: dict[str, Lie] = {
        "none": lambda question, reply: reply,
        "its update times −100": update_times(-100.0),
        "10¹² claimed samples": claims(10**12),
    }
    for name, lie in lies.items():
        cells = {}
        for how, aggregation, on in AVERAGES:
            method = FedAvg(rounds=ROUNDS, lr=0.5, batch_size=20, aggregation=aggregation)
            with rules(on):
                state = run(method, Lying(clients, liar, lie), w, None, seed)[-1]
            cells[how] = accuracy(clients, state.w, clients.ids[:-1])
        found.append({"attack": name, "seed": seed, "accuracy": cells})
    return found


def of_unlearning(seed: int) -> list[dict[str, Any]]:
    """Return what a lying client does to FUPareto without renewal: steps, ASR, R-Acc, and whether it was named."""
    experiment = Experiment(seed=seed)
    request = default_request(experiment)
    training, w = federation(experiment)
    w0 = run(FedAvg(rounds=200, lr=0.5, batch_size=20), training, w, None, seed)[-1].w
    clients, _ = federation(experiment, request)
    retained = [i for i in clients.ids if i not in request.clients]
    liar, leaver = retained[0], request.clients[0]
    lies: dict[str, tuple[str, Lie]] = {
        "none": (liar, lambda question, reply: reply),
        "a retained client vetoes every step": (liar, vetoes),
        "its gradient times 10⁶": (liar, gradient_times(1e6)),
        "its loss is −10⁶": (liar, loss_is(-1e6)),
        "it sends minus the forget clients' gradient": (liar, shields(clients, request.clients)),
        "a forget client's gradient times −1000": (leaver, gradient_times(-1000.0)),
    }
    method, found = find("fupareto:guard", {"rounds": ROUNDS, "recovery_rounds": 0, "lr": 0.2}), []
    for name, (who, lie) in lies.items():
        honest = Sides([i for i in request.clients if i != who], [i for i in retained if i != who])
        cells = {"w0": honest.measured(clients, w0)}
        for rule, on in (("off", False), ("on", True)):
            with rules(on):
                states = run(method, Lying(clients, who, lie), w0, request, seed)
            parts = [s.record.get(part, {}) for s in states[1:] for part in ("trial", "bounded", "missing")]
            cells[rule] = {
                **honest.measured(clients, states[-1].w),
                "steps": sum(s.record["step"] is not None for s in states[1:]),
                "named": sorted({i for part in parts for i in part}),
            }
        found.append({"attack": name, "seed": seed, "liar": who, **cells})
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all attacks on all seeds, and write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23])
    given = parser.parse_args(arguments)
    told: dict[str, Any] = {"versions": versions(), "training": [], "unlearning": []}
    for seed in given.seeds:
        told["training"] += of_training(seed)
        told["unlearning"] += of_unlearning(seed)
        print(f"seed {seed} done", flush=True)
    given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
