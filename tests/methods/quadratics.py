"""A federation whose clients are formulas: every answer is exact, so what a method must do can be worked out by hand.

A client has two lists of samples, one it minimises as a retained client (cross-entropy) and one it minimises to be
forgotten (any other loss). A sample is a function of ``w``; a client's objective is the mean of its samples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fupareto.federation.collected import Traffic
from fupareto.federation.contract import Federation
from fupareto.federation.questions import (
    Answer,
    Evaluate,
    Evaluated,
    Failure,
    Gradient,
    LossAndGradient,
    Losses,
    PseudoGradient,
    Question,
    Train,
    Trained,
    TrialLosses,
)
from fupareto.federation.request import Request
from fupareto.methods import Method
from fupareto.parameters import Layout
from fupareto.pareto import Array
from fupareto.tasks.losses import Loss

Sample = Callable[[Array, Loss], tuple[float, Array]]  # w, loss -> value and gradient


def vector(*values: float) -> Tensor:
    """Return a model."""
    return torch.tensor(values, dtype=torch.float32)


def quadratic(center: Sequence[float], curvature: Sequence[float], floor: float = 0.0) -> Sample:
    """F = floor + ½ Σ_k curvature_k (w_k - center_k)²."""
    c, a = np.array(center), np.array(curvature)

    def sample(w: Array, loss: Loss) -> tuple[float, Array]:
        return floor + 0.5 * float(a @ (w - c) ** 2), a * (w - c)

    return sample


def linear(slope: Sequence[float], offset: float = 0.0) -> Sample:
    """F = slope·w + offset."""
    g = np.array(slope)
    return lambda w, loss: (float(g @ w) + offset, g)


def hinge(slope: Sequence[float], offset: float = 0.0) -> Sample:
    """F = ReLU(slope·w - offset ± delta), the shape of MBS: it vanishes, with its gradient, once it is forgotten."""
    g = np.array(slope)

    def sample(w: Array, loss: Loss) -> tuple[float, Array]:
        delta = float(loss.options.get("delta", 0.0))
        margin = float(g @ w) - offset + (-delta if loss.options.get("form") == "printed" else delta)
        return (margin, g) if margin > 0 else (0.0, np.zeros_like(g))

    return sample


@dataclass(frozen=True)
class Client:
    """What a client minimises when it is retained, and when it is to be forgotten."""

    retained: Sequence[Sample]
    forget: Sequence[Sample]

    def samples(self, loss: Loss) -> Sequence[Sample]:
        return self.retained if loss.name == "ce" else self.forget

    def objective(self, w: Tensor, loss: Loss) -> tuple[float, Tensor]:
        return mean(self.samples(loss), w, loss)


def mean(samples: Sequence[Sample], w: Tensor, loss: Loss) -> tuple[float, Tensor]:
    values, gradients = zip(*(sample(w.double().numpy(), loss) for sample in samples), strict=True)
    return float(np.mean(values)), torch.from_numpy(np.mean(gradients, axis=0)).float()


class QuadraticFederation(Federation):
    """Clients without data or module; ``absent`` do not answer, and ``asked`` remembers every question."""

    def __init__(self, size: int, **clients: Client | Sample) -> None:
        self.clients = {i: c if isinstance(c, Client) else Client([c], [c]) for i, c in clients.items()}
        self.ids = tuple(self.clients)
        self.layout = Layout(("w",), ((size,),), size, size)
        self.traffic = Traffic()
        self.absent: set[str] = set()
        self.asked: list[tuple[str, Question]] = []

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        for i, question in questions.items():
            self.asked.append((i, question))
            yield i, Failure("absent") if i in self.absent else self._answer(self.clients[i], question)

    def _answer(self, client: Client, question: Question) -> Answer:
        match question:
            case Gradient(w=w, loss=loss):
                value, gradient = client.objective(w, loss)
                return LossAndGradient(value, gradient, 1)
            case PseudoGradient(w=w, loss=loss):
                local, steps = _descend(client, question)
                return LossAndGradient(client.objective(w, loss)[0], (w - local) / question.lr, steps)
            case TrialLosses(w=w, direction=d, steps=trials, loss=loss):
                return Losses(tuple(client.objective(w - step * d, loss)[0] for step in trials))
            case Train(loss=loss):
                return Trained(_descend(client, question)[0], len(client.samples(loss)))
            case Evaluate(splits=splits):
                return Evaluated({s: {"samples": 1, "right": 0, "loss": 0.0} for s in splits})
        raise TypeError(f"formulas cannot answer {type(question).__name__}")

    def loss(self, client: str, w: Tensor, loss: Loss) -> float:
        """Return a client's loss, without asking."""
        return self.clients[client].objective(w, loss)[0]

    def gradient(self, client: str, w: Tensor, loss: Loss) -> Tensor:
        """Return a client's gradient, without asking."""
        return self.clients[client].objective(w, loss)[1]


def _descend(client: Client, question: Train | PseudoGradient) -> tuple[Tensor, int]:
    """Run local epochs over consecutive batches; return the local model and the number of steps."""
    samples, w, steps = client.samples(question.loss), question.w, 0
    for _ in range(question.epochs):
        for start in range(0, len(samples), question.batch_size):
            w = w - question.lr * mean(samples[start : start + question.batch_size], w, question.loss)[1]
            steps += 1
    return w, steps


def conflict() -> QuadraticFederation:
    """Two forget and three retained clients in R⁶ that come near the Pareto front after a few rounds at lr 0.1.

    From zero, improvement succeeds, then fails because even the smallest step overshoots, expansion acts, and
    improvement resumes. As retained clients, u1 and u2 would learn what their hinges unlearn.
    """
    u1, u2 = [-0.7, -0.2, -0.2, -0.1, 0.7, 0.1], [0.2, 0.0, -0.5, 0.1, 0.4, 0.1]
    return QuadraticFederation(
        6,
        u1=Client([quadratic(u1, [1.0] * 6)], [hinge(u1, -2.0)]),
        u2=Client([quadratic(u2, [1.0] * 6)], [hinge(u2, -2.0)]),
        r1=quadratic([-0.2, -0.4, 0.5, -0.2, -0.2, -0.4], [0.3, 2.0, 3.7, 1.2, 0.1, 0.6]),
        r2=quadratic([-0.3, -0.1, 0.1, -0.3, -0.2, 0.2], [0.6, 2.2, 0.3, 1.1, 0.1, 3.1]),
        r3=quadratic([-0.1, 0.3, -0.2, -0.1, 0.5, -0.1], [0.3, 0.9, 3.8, 0.8, 0.2, 0.6]),
    )


def walk(method: Method, federation: Federation, w0: Tensor, forget: Sequence[str], seed: int = 0) -> list[Any]:
    """Step a method to its end; return every state, the initial one first."""
    states: list[Any] = [method.init(federation, w0, Request(tuple(forget)), seed)]
    while not states[-1].done:
        assert len(states) <= method.budget, "more rounds than the budget"
        states.append(method.step(federation, states[-1]))
    return states


def story(states: Sequence[Any]) -> str:
    """Return one letter per round: I, E, R for a step of improvement, expansion or recovery, i, e, r for none."""
    letters = [(s.phase[0], s.record["step"]) for s in states[1:]]
    return "".join(letter if step is None else letter.upper() for letter, step in letters)


def cosine(one: Tensor, two: Tensor) -> float:
    """Return the cosine between two vectors, in float64."""
    a, b = one.double(), two.double()
    return float(a @ b / (a.norm() * b.norm()))
