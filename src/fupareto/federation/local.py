"""Work of a client on its own data: batches, local SGD, mean losses, and randomness of its own."""

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
    """How local epochs are run."""

    @property
    def loss(self) -> Loss: ...  # noqa: D102
    @property
    def lr(self) -> float: ...  # noqa: D102
    @property
    def epochs(self) -> int: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102


def descend(module: nn.Module, x: Tensor, y: Tensor, reference: Tensor | None, how: Descent) -> int:
    """Run local epochs of plain SGD over consecutive batches, cut once and never reshuffled; return the steps."""
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
    """Return the mean loss over the data, the module as it is."""
    return sum(float(loss(module(bx), by, br).sum()) for bx, by, br in batches(x, y, reference)) / len(y)


@torch.no_grad()
def logits_of(w: Tensor | None, module: nn.Module, x: Tensor) -> Tensor | None:
    """Return the logits of a reference model, if there is one; the module is left with its weights."""
    if w is None:
        return None
    parameters.write(module, w)
    module.eval()
    return torch.cat([module(batch) for batch in torch.split(x, batch_size(x))])


@torch.no_grad()
def features_of(module: nn.Module, x: Tensor) -> Tensor:
    """Return the inputs of the last layer, the module as it is."""
    return torch.cat([parameters.features(module, part)[0] for part in torch.split(x, batch_size(x))])


def batch_size(x: Tensor) -> int:
    """Return a size such that activations stay near the cache: 255 grey images of 28x28, 65 colour ones of 32x32."""
    return max(50, min(1000, 200_000 // max(1, x[0].numel())))


def batches(
    x: Tensor, y: Tensor, reference: Tensor | None = None, size: int | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Cut inputs, labels and reference logits into consecutive batches."""
    size = size or batch_size(x)
    parts = cut(x, size)
    references = [None] * len(parts) if reference is None else cut(reference, size)
    return zip(parts, cut(y, size), references, strict=True)


def cut(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """Cut a tensor into pieces of a size; a last piece of one is merged into the one before it.

    Batch normalisation has no variance over one sample, and a client whose last batch has one would fail every round.
    """
    whole, rest = divmod(len(x), size)
    if rest != 1 or not whole:
        return torch.split(x, size)
    return torch.split(x, [size] * (whole - 1) + [size + 1])


@contextmanager
def randomness(module: nn.Module, mode: str, seed: int, *names: str) -> Iterator[None]:
    """Put the module in ``mode``; what it draws at random comes from a stream of this question and client.

    PyTorch draws from one generator per process, which clients on several threads would share in an order that
    changes from run to run.
    """
    module.train(mode == "train")
    if mode == "train" and _may_draw(module):
        device = next(module.parameters()).device
        with _Seeded(torch.Generator(device).manual_seed(derive(seed, *names))):
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
