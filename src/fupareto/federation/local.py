"""Computations of a client on its own data: batches, local SGD, mean losses, seeded randomness."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fupareto import parameters
from fupareto.randomness import derive
from fupareto.tasks.losses import Loss


class Descent(Protocol):
    """Parameters of local SGD."""

    @property
    def loss(self) -> Loss: ...  # noqa: D102
    @property
    def lr(self) -> float: ...  # noqa: D102
    @property
    def epochs(self) -> int: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102


def descend(module: nn.Module, x: Tensor, y: Tensor, reference: Tensor | None, how: Descent) -> int:
    """Run local epochs of plain SGD over consecutive batches, without shuffling; return the number of steps."""
    weights = parameters.trainable(module)
    steps = 0
    for _ in range(how.epochs):
        for batch_x, batch_y, batch_r in batches(x, y, reference, how.batch_size):
            loss = how.loss(module(batch_x), batch_y, batch_r).mean()
            gradients = torch.autograd.grad(loss, weights, allow_unused=True)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    if gradient is not None:
                        weight.add_(gradient, alpha=-how.lr)
            steps += 1
    return steps


@torch.no_grad()
def mean_loss(module: nn.Module, x: Tensor, y: Tensor, reference: Tensor | None, loss: Loss) -> float:
    """Return the mean loss over the data, with the current weights and mode of the module."""
    return sum(float(loss(module(bx), by, br).sum()) for bx, by, br in batches(x, y, reference)) / len(y)


@torch.no_grad()
def logits_of(w: Tensor | None, module: nn.Module, x: Tensor) -> Tensor | None:
    """Return the logits of a reference model, None without one; the module is left with its weights, in mode eval."""
    if w is None:
        return None
    parameters.write(module, w)
    module.eval()
    return torch.cat([module(batch) for batch in torch.split(x, batch_size(x))])


@torch.no_grad()
def features_of(module: nn.Module, x: Tensor) -> Tensor:
    """Return the inputs of the last layer, with the current weights and mode of the module."""
    return torch.cat([parameters.features(module, part)[0] for part in torch.split(x, batch_size(x))])


def batch_size(x: Tensor) -> int:
    """Return a batch size whose activations fit the CPU cache: 255 grey images of 28x28, 65 colour ones of 32x32."""
    return max(50, min(1000, 200_000 // max(1, x[0].numel())))


def batches(
    x: Tensor, y: Tensor, reference: Tensor | None = None, size: int | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Divide inputs, labels and reference logits into consecutive batches."""
    size = size or batch_size(x)
    parts = cut(x, size)
    references = [None] * len(parts) if reference is None else cut(reference, size)
    return zip(parts, cut(y, size), references, strict=True)


def cut(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """Divide a tensor into batches; a last batch of one sample is merged into the batch before it.

    Batch normalisation in training mode raises an error for a batch of one sample.
    """
    whole, rest = divmod(len(x), size)
    if rest != 1 or not whole:
        return torch.split(x, size)
    return torch.split(x, [size] * (whole - 1) + [size + 1])


@contextmanager
def randomness(module: nn.Module, mode: str, seed: int, *names: str) -> Iterator[None]:
    """Set the mode of the module; its random operations use a generator seeded by ``seed`` and ``names``.

    PyTorch's default generator is shared by all threads, so results would depend on the order in which clients run.
    """
    module.train(mode == "train")
    if mode == "train" and _may_draw(module):
        device = next(module.parameters()).device
        with _Seeded(torch.Generator(device).manual_seed(derive(seed, *names))):
            yield
    else:
        yield


def _may_draw(module: nn.Module) -> bool:
    """Return whether the module may use random numbers: dropout does, and modules of other packages may."""
    draw = (nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
    return any(
        isinstance(m, draw)
        or getattr(m, "dropout", 0)
        or not type(m).__module__.startswith(("torch.nn.modules.", "fupareto.models"))
        for m in module.modules()
    )


class _Seeded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Pass one generator to every random operation, on this thread only."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        draws = torch.Tag.nondeterministic_seeded in func.tags
        if draws and any(argument.name == "generator" for argument in func._schema.arguments):
            return func(*args, **{**(kwargs or {}), "generator": self.generator})
        return func(*args, **(kwargs or {}))
