"""Computations of a client on its own data: local training, mean losses, outputs, seeded randomness."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fupareto import parameters
from fupareto.federation.optimisers import PLAIN, Optimiser
from fupareto.randomness import derive, stream
from fupareto.tasks.losses import Loss
from fupareto.tasks.samples import Samples, batch_size, cut


class Descent(Protocol):
    """Parameters of local training."""

    @property
    def loss(self) -> Loss: ...  # noqa: D102
    @property
    def lr(self) -> float: ...  # noqa: D102
    @property
    def epochs(self) -> int: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102


def descend(
    module: nn.Module,
    samples: Samples,
    reference: Tensor | None,
    how: Descent,
    client: str,
    optimiser: Optimiser = PLAIN,
) -> int:
    """Run local epochs over batches, consecutive ones unless the optimiser shuffles; return the number of steps."""
    weights = parameters.trainable(module)
    step = optimiser.start(weights, how.lr)
    task, steps = samples.task, 0
    for epoch in range(how.epochs):
        drawn, other = samples.epoch(derive(how.seed, "draw", client, epoch)), reference
        if optimiser.shuffle:
            order = torch.from_numpy(stream(how.seed, "shuffle", client, epoch).permutation(len(drawn)))
            drawn, other = drawn.take(order), None if other is None else other[order.to(other.device)]
        for batch in drawn.batches(how.batch_size, other):
            outputs = task.forward(module, batch.inputs)
            loss = task.losses(how.loss, outputs, batch.targets, batch.reference).mean()
            step(torch.autograd.grad(loss, weights, allow_unused=True))
            steps += 1
    return steps


@torch.no_grad()
def mean_loss(module: nn.Module, samples: Samples, reference: Tensor | None, loss: Loss) -> float:
    """Return the mean loss over the data, with the current weights and mode of the module."""
    task = samples.task
    total = sum(
        float(task.losses(loss, task.forward(module, b.inputs), b.targets, b.reference).sum())
        for b in samples.batches(reference=reference)
    )
    return total / len(samples)


@torch.no_grad()
def outputs_of(w: Tensor | None, module: nn.Module, samples: Samples) -> Tensor | None:
    """Return the outputs of a reference model, None without one; the module is left with its weights, in mode eval."""
    if w is None:
        return None
    parameters.write(module, w)
    module.eval()
    return torch.cat([samples.outputs(module, batch) for batch in samples.batches()])


@torch.no_grad()
def features_of(module: nn.Module, x: Tensor) -> Tensor:
    """Return the inputs of the last layer, with the current weights and mode of the module."""
    return torch.cat([parameters.features(module, part)[0] for part in torch.split(x, batch_size(x))])


def batches(x: Tensor, y: Tensor, size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Divide inputs and labels into consecutive batches."""
    size = size or batch_size(x)
    return zip(cut(x, size), cut(y, size), strict=True)


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
