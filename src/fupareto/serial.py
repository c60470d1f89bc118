"""Serialisation of dataclasses as tensors and JSON values, for checkpoints and messages; no pickle."""

import dataclasses
import json
from typing import Any, TypeVar, get_type_hints

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fupareto import documents
from fupareto.errors import UserError
from fupareto.tasks.losses import Loss

T = TypeVar("T")


def pack(thing: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split a dataclass of tensors, losses and plain values into its tensors and its JSON values."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, Tensor):
            tensors[field.name] = value
        elif isinstance(value, Loss):
            values[field.name] = {"name": value.name, **value.options}
        else:
            values[field.name] = value
    return tensors, values


def unpack(cls: type[T], tensors: dict[str, Tensor], values: dict[str, Any]) -> T:
    """Return the dataclass that :func:`pack` split; lists become tuples again."""
    hints = get_type_hints(cls)
    fields: dict[str, Any] = dict(tensors)
    for name, value in values.items():
        if hints[name] is Loss:
            fields[name] = Loss(**value)
        else:
            fields[name] = tuple(value) if isinstance(value, list) else value
    return cls(**fields)


def to_bytes(thing: Any, **more: str) -> bytes:
    """Return the dataclass as a safetensors file, with its plain values as JSON in the metadata.

    Args:
        thing: The dataclass.
        **more: Further metadata.
    """
    tensors, values = pack(thing)
    metadata = {**more, "type": type(thing).__name__, "values": json.dumps(values)}
    return safetensors.torch.save(_apart(tensors), metadata)


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors that share no memory, as safetensors requires; copies only where needed."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        dense = tensor.detach().cpu().contiguous()
        shared = any(dense.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in found.values())
        found[name] = dense.clone() if shared else dense
    return found


def moved(thing: T, device: torch.device) -> T:
    """Return the dataclass with its tensors on a device."""
    tensors, _ = pack(thing)
    return dataclasses.replace(thing, **{name: t.to(device) for name, t in tensors.items()})  # type: ignore[type-var]


def from_bytes(types: dict[str, type[T]], data: bytes) -> T:
    """Return the dataclass that :func:`to_bytes` wrote.

    Args:
        types: Accepted classes by name.
        data: Content of the file.

    Raises:
        ValueError: The file is damaged, or of another type.
    """
    try:
        length = int.from_bytes(data[:8], "little")
        metadata = documents.parse_object(data[8 : 8 + length])["__metadata__"]
        tensors = safetensors.torch.load(data)
        return unpack(types[metadata["type"]], tensors, documents.parse_object(metadata["values"], finite=False))
    except (safetensors.SafetensorError, AttributeError, KeyError, TypeError, ValueError, UserError) as error:
        raise ValueError(f"not a complete safetensors file of {', '.join(types)}: {error}") from error


def same(a: Any, b: Any) -> bool:
    """Return whether two dataclasses have bit-identical tensors and equal values."""
    (tensors_a, values_a), (tensors_b, values_b) = pack(a), pack(b)
    return (
        values_a == values_b
        and tensors_a.keys() == tensors_b.keys()
        and all(torch.equal(tensors_a[k], tensors_b[k]) for k in tensors_a)
    )
