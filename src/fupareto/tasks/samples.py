"""Samples of one split of a client: inputs in their own types, targets, and the task that they belong to."""

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from fupareto.errors import UserError
from fupareto.tasks.base import Task
from fupareto.tasks.kinds import Classes
from fupareto.tasks.trees import Tree, count, mapped, tensors, zipped

TARGETS = ("labels", "label", "targets", "target", "y")  # keys of the targets in a dict
OUTPUTS = 4_000_000  # numbers that the outputs of a batch may have where the client chooses its size
CLASSES = Classes()
Collate = Callable[[list[Any]], Any]
_DRAWING = threading.Lock()  # the generators of a user's data set are shared by all threads


class Batch(NamedTuple):
    """Inputs and targets of some samples, with the outputs of a reference model where there is one."""

    inputs: Tree
    targets: Tensor
    reference: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Samples(ABC):
    """Samples of one split.

    Attributes:
        task: What they belong to.
        width: How many outputs one sample has; 0 if that is not known. It limits the size of batches.
    """

    task: Task
    width: int

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def targets(self) -> Tensor:
        """Return the targets of all samples."""

    @abstractmethod
    def take(self, rows: Tensor) -> "Samples":
        """Return some samples, by their numbers or by a mask."""

    @abstractmethod
    def batches(self, size: int | None = None, reference: Tensor | None = None) -> Iterator[Batch]:
        """Yield consecutive batches, by default of a size that suits measuring."""

    @abstractmethod
    def converted(self, function: Callable[[Tree], Tree], device: torch.device | None, task: Task) -> "Samples":
        """Return samples of a task, with targets in its form, and with inputs changed by ``function``."""

    def epoch(self, seed: int) -> "Samples":
        """Return the samples of one epoch of training: the same ones, unless they are drawn anew each time."""
        return self

    def first(self, number: int) -> Batch:
        """Return a batch of the first samples."""
        return next(self.take(torch.arange(min(number, len(self)))).batches(number))

    def of(self, task: Task) -> Self:
        """Return the same samples with another task of the same kind, whose targets have the same form."""
        return replace(self, task=task)

    def outputs(self, module: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs of a model for a batch."""
        return self.task.forward(module, batch.inputs)


@dataclass(frozen=True, eq=False)
class Held(Samples):
    """Samples as tensors with one leading dimension: inputs are a tensor, or a tuple or dict of them."""

    inputs: Tree
    held: Tensor

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Iterator[Any]:
        """Yield inputs and targets, so that ``x, y = samples``."""
        return iter((self.inputs, self.held))

    def __getitem__(self, part: int) -> Any:
        """Return the inputs (0) or the targets (1)."""
        return (self.inputs, self.held)[part]

    @property
    def targets(self) -> Tensor:
        """Return the targets of all samples."""
        return self.held

    def take(self, rows: Tensor) -> "Held":
        """Return some samples, by their numbers or by a mask."""
        rows = rows.to(self.held.device)
        return replace(self, inputs=mapped(lambda leaf: leaf[rows], self.inputs), held=self.held[rows])

    def batches(self, size: int | None = None, reference: Tensor | None = None) -> Iterator[Batch]:
        """Yield consecutive batches; they are views."""
        size = size or batch_size(self.inputs, self.width)
        targets = cut(self.held, size)
        references: Sequence[Tensor | None] = [None] * len(targets) if reference is None else cut(reference, size)
        if isinstance(self.inputs, Tensor):
            yield from map(Batch, cut(self.inputs, size), targets, references)
            return
        parts = mapped(lambda leaf: _Leaf(cut(leaf, size)), self.inputs)
        for k, (target, other) in enumerate(zip(targets, references, strict=True)):
            yield Batch(_kth(parts, k), target, other)

    def converted(self, function: Callable[[Tree], Tree], device: torch.device | None, task: Task) -> "Held":
        """Return samples of a task, with inputs changed by ``function``."""
        return Held(task, 0, function(self.inputs), task.prepared(self.held).to(device).contiguous())


@dataclass(frozen=True, eq=False)
class Listed(Samples):
    """Samples as they are, made into batches by a user's function: they may differ in length."""

    items: Sequence[Any]
    collate: Collate
    change: Callable[[Tree], Tree] = lambda tree: tree
    device: torch.device | None = None

    def __len__(self) -> int:
        return len(self.items)

    @property
    def targets(self) -> Tensor:
        """Return the targets of all samples; they must have one shape."""
        try:
            return torch.cat([batch.targets for batch in self.batches(1000)])
        except RuntimeError as error:
            raise UserError("targets of different lengths cannot be listed, as a request for classes needs") from error

    def take(self, rows: Tensor) -> "Listed":
        """Return some samples, by their numbers or by a mask."""
        chosen = rows.nonzero().flatten() if rows.dtype == torch.bool else rows
        return replace(self, items=[self.items[k] for k in chosen.tolist()])

    def batches(self, size: int | None = None, reference: Tensor | None = None) -> Iterator[Batch]:
        """Yield batches that the user's function has made."""
        size = size or max(4, min(200, OUTPUTS // max(1, self.width)))
        for rows in cut(torch.arange(len(self.items)), size):
            inputs, targets = parted(self.collate([self.items[k] for k in rows.tolist()]))
            ready = self.task.prepared(torch.as_tensor(targets)).to(self.device)
            other = None if reference is None else reference[rows.to(reference.device)]
            yield Batch(self.change(tensors(inputs)), ready, other)

    def converted(self, function: Callable[[Tree], Tree], device: torch.device | None, task: Task) -> "Listed":
        """Return samples of a task, with inputs changed by ``function`` after they were made into batches."""
        before = self.change
        return replace(self, task=task, change=lambda tree: function(before(tree)), device=device)


@dataclass(frozen=True, eq=False)
class Redrawn(Samples):
    """Samples that are drawn anew in every epoch of training, as a data set with random augmentation gives them.

    Measurements and gradients use one drawing, ``still``, so that they can be repeated.
    """

    still: Samples
    draw: Callable[[], Samples]

    def __len__(self) -> int:
        return len(self.still)

    def __iter__(self) -> Iterator[Any]:
        """Yield inputs and targets of the drawing that is measured."""
        return iter(self.still)  # type: ignore[call-overload, no-any-return]

    @property
    def targets(self) -> Tensor:
        """Return the targets of all samples."""
        return self.still.targets

    def take(self, rows: Tensor) -> "Redrawn":
        """Return some samples, by their numbers or by a mask."""
        return replace(self, still=self.still.take(rows), draw=lambda: self.draw().take(rows))

    def batches(self, size: int | None = None, reference: Tensor | None = None) -> Iterator[Batch]:
        """Yield consecutive batches of the drawing that is measured."""
        return self.still.batches(size, reference)

    def converted(self, function: Callable[[Tree], Tree], device: torch.device | None, task: Task) -> "Redrawn":
        """Return samples of a task, with inputs changed by ``function`` in every drawing."""
        return Redrawn(
            task,
            0,
            self.still.converted(function, device, task),
            lambda: self.draw().converted(function, device, task),
        )

    def of(self, task: Task) -> "Redrawn":
        """Return the same samples with another task of the same kind."""
        return replace(self, task=task, still=self.still.of(task), draw=lambda: self.draw().of(task))

    def epoch(self, seed: int) -> Samples:
        """Draw the samples of an epoch, with Python's, numpy's and torch's generators seeded for it."""
        with _DRAWING, torch.random.fork_rng(devices=[]):
            before = random.getstate(), np.random.get_state()  # noqa: NPY002 - a user's data set may draw from it
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            torch.manual_seed(seed)
            try:
                return self.draw()
            finally:
                random.setstate(before[0])
                np.random.set_state(before[1])  # noqa: NPY002


def samples_of(given: Any) -> Samples:
    """Return samples as they are, and a pair of tensors (inputs, labels) as samples of classes."""
    return given if isinstance(given, Samples) else Held(CLASSES, 0, given[0], given[1])


def together(parts: Sequence[Any]) -> Held:
    """Return the samples of several splits as one."""
    held = [part for part in map(samples_of, parts) if isinstance(part, Held)]
    if len(held) < len(parts):
        raise UserError("samples that are made into batches by a function, or drawn anew, cannot be put together")
    inputs = zipped(torch.cat, [part.inputs for part in held])
    return replace(held[0], inputs=inputs, held=torch.cat([part.held for part in held]))


def parted(sample: Any) -> tuple[Any, Any]:
    """Return the inputs and the targets of a sample or of a batch.

    The targets are the last part of a tuple, or the entry ``labels`` (label, targets, target, y) of a dict. Token ids
    alone are their own targets; those that a dict's ``attention_mask`` leaves out do not count.
    """
    if isinstance(sample, Mapping):
        key = next((key for key in TARGETS if key in sample), None)
        inputs = {str(name): part for name, part in sample.items() if name != key}
        if key is not None:
            return inputs, sample[key]
        if "input_ids" not in sample:
            raise ValueError(f"a sample has {', '.join(map(str, sample))}; name its target 'labels'")
        ids = torch.as_tensor(sample["input_ids"])
        mask = sample.get("attention_mask")
        return inputs, ids if mask is None else ids.masked_fill(torch.as_tensor(mask) == 0, -100)
    if isinstance(sample, tuple | list) and len(sample) > 1:
        return (sample[0] if len(sample) == 2 else tuple(sample[:-1])), sample[-1]
    ids = sample[0] if isinstance(sample, tuple | list) and len(sample) == 1 else sample
    return ids, ids


def batch_size(inputs: Tree, width: int = 0) -> int:
    """Return a batch size whose activations fit the CPU cache: 255 grey images of 28x28, 65 colour ones of 32x32."""
    by_inputs = max(50, min(1000, 200_000 // max(1, count(inputs))))
    return by_inputs if not width else min(by_inputs, max(4, OUTPUTS // width))


def cut(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """Divide a tensor into batches; a last batch of one sample is merged into the batch before it.

    Batch normalisation in training mode raises an error for a batch of one sample.
    """
    whole, rest = divmod(len(x), size)
    if rest != 1 or not whole:
        return torch.split(x, size)
    return torch.split(x, [size] * (whole - 1) + [size + 1])


@dataclass(frozen=True)
class _Leaf:
    """Batches of one tensor of a structure; a tuple would be taken for a structure."""

    parts: tuple[Tensor, ...]


def _kth(tree: Tree, k: int) -> Tree:
    return mapped(lambda leaf: leaf.parts[k], tree)
