"""Checks of a client's data: against each other, the task and the model."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fupareto import documents
from fupareto.errors import UserError
from fupareto.federation.request import Splits
from fupareto.tasks import Task
from fupareto.tasks.samples import CLASSES, Held, Listed, Redrawn, Samples, samples_of
from fupareto.tasks.trees import Tree, leaves, mapped, shapes

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # types that few operations of torch take


def checked_names(clients: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of clients; refuse ids that could not be read again from the files of a run."""
    try:
        return documents.names(list(clients), "the client ids")
    except ValueError as error:
        raise UserError(str(error)) from error


def checked(
    client: str,
    splits: Mapping[str, Any],
    device: torch.device | None = None,
    task: Task = CLASSES,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Check a client's splits and return them as contiguous tensors, images channels-last.

    Args:
        client: Id of the client, for error messages.
        splits: Samples, or inputs and labels, by name; ``train`` is required.
        device: Device to move the tensors to; None for the current one.
        task: The task.
        dtype: Type of inputs that are not whole numbers.

    Raises:
        UserError: If the data cannot be used.
    """
    if "train" not in splits:
        raise UserError(f"client '{client}' has no 'train' data; give every client a train and a test set")
    found = {
        name: _converted(f"client '{client}', {name} data", samples_of(given), device, task, dtype)
        for name, given in splits.items()
    }
    first = found["train"].first(1000)
    own = task.settled(first.inputs, first.targets)
    return found if own == task else {name: samples.of(own) for name, samples in found.items()}


def _converted(where: str, samples: Samples, device: torch.device | None, task: Task, dtype: torch.dtype) -> Samples:
    if len(samples) < 1:
        raise UserError(f"{where}: no samples; leave the client out, or give it data")

    def change(tree: Tree) -> Tree:
        return mapped(lambda leaf: _laid_out(_typed(leaf, dtype).to(device)), tree)

    if isinstance(samples, Held):
        for leaf in leaves(samples.inputs):
            if not leaf.dim() or len(leaf) != len(samples):
                raise UserError(f"{where}: {len(leaf) if leaf.dim() else 1} inputs but {len(samples)} labels")
            if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
                raise UserError(f"{where}: inputs contain NaN or infinity; remove or replace them")
    try:
        found = samples.converted(change, device, task)
        found.first(2)
    except (ValueError, TypeError, RuntimeError, KeyError) as error:
        raise UserError(f"{where}: {error}") from error
    return found


def _typed(leaf: Tensor, dtype: torch.dtype) -> Tensor:
    """Return fractions in the type of the model; whole numbers stay as they are, in a type that torch can index."""
    if leaf.dtype in UNSIGNED:
        return leaf.to(torch.int64)
    return leaf.to(dtype) if leaf.is_floating_point() else leaf


def _laid_out(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.contiguous()


def fitted(model: nn.Module, clients: Mapping[str, Splits]) -> dict[str, dict[str, Samples]]:
    """Check that the clients' data match each other and the model, with a batch of real samples of each client.

    Returns:
        The clients, with the number of outputs per sample. Whole numbers that the model takes in another type only
        have it: token ids in one byte or two become int64, pixels from 0 to 255 fractions.

    Raises:
        UserError: If they do not match.
    """
    found = {i: dict(splits) for i, splits in clients.items()}
    first, *_ = found.values()
    shape = shapes(first["train"].first(2).inputs)
    if any(not leaf.is_floating_point() for leaf in leaves(first["train"].first(2).inputs)):
        dtypes = (None, torch.int64, check_dtype(model))
        kind = next((kind for kind in dtypes if not _refused(model, _counted_in(first["train"], kind))), None)
        found = {i: {name: _counted_in(s, kind) for name, s in splits.items()} for i, splits in found.items()}
    seen: dict[str, int] = {}
    for i, splits in found.items():
        for name, samples in splits.items():
            splits[name] = _fitted(f"client '{i}', {name} data", model, samples, shape, seen)
    return found


def _fitted(where: str, model: nn.Module, samples: Samples, shape: Tree, seen: dict[str, int]) -> Samples:
    """Check one split: its shape, one forward pass per shape, and all of its targets."""
    batch = samples.first(2)
    own = shapes(batch.inputs)
    fractions = any(leaf.is_floating_point() for leaf in leaves(batch.inputs))
    if fractions and isinstance(samples, Held | Redrawn) and own != shape:
        raise UserError(f"{where}: samples of shape {own}, but other clients have {shape}")
    outputs = probe(model, samples, where)
    width = seen.setdefault(str(own), outputs[0].numel())
    try:
        samples.task.check(outputs, batch.targets)
        _check_loss(samples.task, outputs, batch.targets)
        if isinstance(samples, Held):
            _check_all(samples, outputs)
    except (ValueError, RuntimeError, IndexError, TypeError) as error:
        raise UserError(f"{where}: {error}") from error
    return _widened(samples, width)


def _widened(samples: Samples, width: int) -> Samples:
    if isinstance(samples, Redrawn):
        return dataclasses.replace(samples, width=width, still=_widened(samples.still, width))
    return dataclasses.replace(samples, width=width)


def _check_loss(task: Task, outputs: Tensor, targets: Tensor) -> None:
    """Refuse a user's loss that does not give a number per sample."""
    loss = task.objective(outputs, targets)
    if loss.shape != (len(targets),):
        raise ValueError(
            f"the task {task.label} gives losses of shape {tuple(loss.shape)} for {len(targets)} samples; there must "
            "be one per sample"
        )


def _check_all(samples: Held, outputs: Tensor) -> None:
    """Check all targets against outputs of the right shape, without further forward passes."""
    if len(samples) > len(outputs) and outputs.numel() // len(outputs) * len(samples) <= 10_000_000:
        samples.task.check(outputs[:1].expand(len(samples), *outputs.shape[1:]), samples.held)


def probe(model: nn.Module, samples: Samples, where: str = "the data") -> Tensor:
    """Return the model's outputs for the first two samples; refuse a model that cannot take them."""
    batch = samples.first(2)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return samples.outputs(model, batch)
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        kinds = ", ".join(f"{tuple(leaf.shape[1:])} {leaf.dtype}" for leaf in leaves(batch.inputs))
        hint = "; collate must return (inputs, targets), the targets last" if isinstance(samples, Listed) else ""
        raise UserError(f"{where}: the model cannot take samples of shape {kinds}: {error}{hint}") from error
    finally:
        model.train(was_training)


def _refused(model: nn.Module, samples: Samples) -> bool:
    try:
        probe(model, samples)
    except UserError:
        return True
    return False


def _counted_in(samples: Samples, dtype: torch.dtype | None) -> Samples:
    """Return samples whose whole numbers have another type."""
    if dtype is None:
        return samples
    return samples.converted(
        lambda tree: mapped(lambda leaf: leaf if leaf.is_floating_point() else leaf.to(dtype), tree), None, samples.task
    )


def check_dtype(model: nn.Module) -> torch.dtype:
    """Return the type of the model's numbers; refuse models that are trained in half precision."""
    kinds = {p.dtype for p in model.parameters() if p.requires_grad}
    if half := kinds & {torch.float16, torch.bfloat16}:
        raise UserError(
            f"the model's trainable parameters are {half.pop()}, in which small steps vanish; call model.float() first "
            "(frozen parameters may stay as they are)"
        )
    if other := kinds - {torch.float32, torch.float64}:
        raise UserError(f"the model's trainable parameters are {other.pop()}; they must be float32 or float64")
    return torch.float64 if kinds == {torch.float64} else torch.float32
