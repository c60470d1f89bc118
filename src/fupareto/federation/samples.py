"""Conversion of a client's data to splits of tensors, and checks."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fupareto import documents
from fupareto.errors import UserError
from fupareto.federation.request import Splits

Samples = Any  # (inputs, labels) as tensors or arrays, or a torch Dataset of (input, label) pairs


def checked_names(clients: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of clients; refuse ids that could not be read again from the files of a run."""
    try:
        return documents.names(list(clients), "the client ids")
    except ValueError as error:
        raise UserError(str(error)) from error


def splits_of(client: str, held: Any) -> dict[str, tuple[Tensor, Tensor]]:
    """Return a client's data as splits of tensors.

    Args:
        client: Id of the client, for error messages.
        held: A train and a test set, or a mapping of sets by name; each set is (inputs, labels) or a torch Dataset.
    """
    try:
        if isinstance(held, Mapping):
            return {str(name): _tensors(samples) for name, samples in held.items()}
        train, test = held
        return {"train": _tensors(train), "test": _tensors(test)}
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"client '{client}' must have a train and a test set, each (inputs, labels) or a torch Dataset of "
            f"(input, label) pairs: {error}"
        ) from error


def _tensors(samples: Samples) -> tuple[Tensor, Tensor]:
    if isinstance(samples, tuple | list) and len(samples) == 2 and hasattr(samples[0], "shape"):
        return torch.as_tensor(samples[0]), torch.as_tensor(samples[1])
    pairs = [samples[k] for k in range(len(samples))]
    inputs = torch.stack([torch.as_tensor(x) for x, _ in pairs]) if pairs else torch.empty(0)
    return inputs, torch.tensor([int(y) for _, y in pairs])


def checked(client: str, splits: Splits, device: torch.device | None = None) -> Splits:
    """Check a client's splits and return them as contiguous tensors, images channels-last.

    Args:
        client: Id of the client, for error messages.
        splits: Inputs and labels by name; ``train`` is required.
        device: Device to move the tensors to; None for the current one.

    Raises:
        UserError: If the data cannot be used.
    """
    checked = {}
    if "train" not in splits:
        raise UserError(f"client '{client}' has no 'train' data; give every client a train and a test set")
    for name, (x, y) in splits.items():
        where = f"client '{client}', {name} data"
        if len(x) != len(y):
            raise UserError(f"{where}: {len(x)} inputs but {len(y)} labels")
        if len(y) < 1:
            raise UserError(f"{where}: no samples; leave the client out, or give it data")
        if y.dtype not in (torch.int64, torch.int32, torch.uint8) or y.dim() != 1:
            raise UserError(f"{where}: labels must be a vector of integers, not {y.dtype} of shape {tuple(y.shape)}")
        if not bool(torch.isfinite(x).all()):
            raise UserError(f"{where}: inputs contain NaN or infinity; remove or replace them")
        checked[name] = (_laid_out(x.to(device, torch.float32)), y.to(device, torch.int64))
    return checked


def _laid_out(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.contiguous()


def check_fit(client: str, splits: Splits, shape: tuple[int, ...], outputs: int) -> None:
    """Raise UserError for samples of another shape than ``shape``, or labels outside the model's ``outputs``."""
    for name, (x, y) in splits.items():
        where = f"client '{client}', {name} data"
        if tuple(x.shape[1:]) != shape:
            raise UserError(f"{where}: samples of shape {tuple(x.shape[1:])}, but other clients have {shape}")
        if int(y.min()) < 0 or int(y.max()) >= outputs:
            raise UserError(
                f"{where}: labels from {int(y.min())} to {int(y.max())}, but the model has {outputs} outputs, "
                f"for labels 0 to {outputs - 1}"
            )
