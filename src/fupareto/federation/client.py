"""How does a client answer? Pure functions of a module, the client's data and the question; engines share them."""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fupareto import parameters
from fupareto.federation.questions import (
    Answer,
    Evaluate,
    Evaluated,
    Gradient,
    LossAndGradient,
    Losses,
    PseudoGradient,
    Question,
    Train,
    Trained,
    TrialLosses,
)
from fupareto.losses import Loss
from fupareto.parameters import Layout
from fupareto.randomness import derive

Splits = Mapping[str, tuple[Tensor, Tensor]]  # name -> inputs and labels; "train" and "test" always


@functools.singledispatch
def answer(question: Question, module: nn.Module, splits: Splits, client: str) -> Answer:
    """Answer one question; ``module`` is scratch space, loaded with the question's ``w`` first."""
    raise TypeError(f"not a question: {type(question).__name__}")


@answer.register
def _(question: Train, module: nn.Module, splits: Splits, client: str) -> Answer:
    parameters.write(module, question.w)
    x, y = splits["train"]
    with _randomness(module, "train", question.seed, client):
        _descend(module, x, y, question)
    return Trained(w=parameters.read(module), size=len(y))


@answer.register
def _(question: Gradient, module: nn.Module, splits: Splits, client: str) -> Answer:
    parameters.write(module, question.w)
    x, y = splits["train"]
    module.zero_grad(set_to_none=True)
    total = 0.0
    with _randomness(module, question.mode, question.seed, client):
        for batch_x, batch_y in _batches(x, y):
            loss = question.loss(module(batch_x), batch_y).sum() / len(y)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
    gradient = parameters.read_gradient(module, Layout.of(module))
    module.zero_grad(set_to_none=True)
    return LossAndGradient(loss=total, gradient=gradient, steps=1)


@answer.register
def _(question: PseudoGradient, module: nn.Module, splits: Splits, client: str) -> Answer:
    parameters.write(module, question.w)
    x, y = splits["train"]
    with _randomness(module, question.mode, question.seed, client):
        loss = _mean_loss(module, x, y, question.loss)
    with _randomness(module, "train", question.seed, client, "epochs"):
        steps = _descend(module, x, y, question)
    gradient = (question.w - parameters.read(module)) / question.lr
    gradient[Layout.of(module).trainable :] = 0.0
    return LossAndGradient(loss=loss, gradient=gradient, steps=steps)


@answer.register
def _(question: TrialLosses, module: nn.Module, splits: Splits, client: str) -> Answer:
    x, y = splits["train"]
    losses = []
    for step in question.steps:
        parameters.write(module, question.w - step * question.direction)
        with _randomness(module, question.mode, question.seed, client):
            losses.append(_mean_loss(module, x, y, question.loss))
    return Losses(losses=tuple(losses))


@answer.register
def _(question: Evaluate, module: nn.Module, splits: Splits, client: str) -> Answer:
    parameters.write(module, question.w)
    module.eval()
    counts = {}
    for name in question.splits:
        if name not in splits:
            continue
        x, y = splits[name]
        right, loss = 0, 0.0
        with torch.no_grad():
            for batch_x, batch_y in _batches(x, y):
                logits = module(batch_x)
                right += int((logits.argmax(1) == batch_y).sum())
                loss += float(F.cross_entropy(logits, batch_y, reduction="sum"))
        counts[name] = {"samples": len(y), "right": right, "loss": loss / max(len(y), 1)}
    return Evaluated(counts=counts)


def _descend(module: nn.Module, x: Tensor, y: Tensor, question: Train | PseudoGradient) -> int:
    """Run local epochs of plain SGD over consecutive batches (PROTOCOL: cut once, never reshuffled)."""
    weights = parameters.trainable(module)
    steps = 0
    for _ in range(question.epochs):
        for batch_x, batch_y in _batches(x, y, question.batch_size):
            loss = question.loss(module(batch_x), batch_y).mean()
            gradients = torch.autograd.grad(loss, weights, allow_unused=True)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    if gradient is not None:
                        weight.add_(gradient, alpha=-question.lr)
            steps += 1
    return steps


@torch.no_grad()
def _mean_loss(module: nn.Module, x: Tensor, y: Tensor, loss: Loss) -> float:
    return sum(float(loss(module(bx), by).sum()) for bx, by in _batches(x, y)) / len(y)


def _batches(x: Tensor, y: Tensor, size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut into consecutive batches.

    Without a size, such that activations stay in cache: 510 grey images of 28x28, 130 colour ones of 32x32.
    """
    size = size or max(50, min(1000, 400_000 // max(1, x[0].numel())))
    return zip(torch.split(x, size), torch.split(y, size), strict=True)


@contextmanager
def _randomness(module: nn.Module, mode: str, seed: int, *names: str) -> Iterator[None]:
    """Put the module in ``mode``; what it draws at random comes from a stream of this question and client.

    PyTorch draws from one generator per process, which clients on several threads would share in an order that
    changes from run to run.
    """
    module.train(mode == "train")
    if mode == "train" and _may_draw(module):
        with _Seeded(torch.Generator().manual_seed(derive(seed, *names))):
            yield
    else:
        yield


def _may_draw(module: nn.Module) -> bool:
    """Whether the module may draw random numbers: dropout does, and code that we do not know may."""
    draw = (nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
    return any(
        isinstance(m, draw)
        or getattr(m, "dropout", 0)
        or not type(m).__module__.startswith(("torch.nn.modules.", "fupareto.models"))
        for m in module.modules()
    )


class _Seeded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Give one generator to every operation that takes one, on this thread only."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        draws = torch.Tag.nondeterministic_seeded in func.tags
        if draws and any(argument.name == "generator" for argument in func._schema.arguments):
            return func(*args, **{**(kwargs or {}), "generator": self.generator})
        return func(*args, **(kwargs or {}))
