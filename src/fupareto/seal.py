"""Sealed files, which hold the SHA-256 of their own content: any flipped bit is found.

A safetensors file has it in its metadata, a JSON object under ``sha256``.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import safetensors.torch
from torch import Tensor

BLANK = "0" * 64  # in place of the SHA-256 while it is computed
_PLACE = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_LONGEST = 2**26  # bytes of a header


def sealed(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a safetensors file with its SHA-256 in the metadata."""
    dense = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    return seal(safetensors.torch.save(dense, {**(metadata or {}), "sha256": BLANK}))


def ordered(data: bytes) -> bytes:
    """Return a safetensors file with the entries of its header in order; safetensors writes them in any."""
    length = _length(data)
    header = json.dumps(json.loads(data[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return b"".join((len(header).to_bytes(8, "little"), header, data[8 + length :]))


def seal(data: bytes) -> bytes:
    """Return a safetensors file whose metadata have a blank ``sha256``, in order and with the SHA-256 filled in."""
    data = ordered(data)
    start, end = _place(data)
    return b"".join((data[:start], hashlib.sha256(data).hexdigest().encode(), data[end:]))


def check(data: bytes) -> dict[str, str]:
    """Return the metadata of a sealed file.

    Raises:
        ValueError: The file is not sealed, or is not what was sealed.
    """
    start, end = _place(data)
    content = hashlib.sha256(data[:start])
    content.update(BLANK.encode())
    content.update(memoryview(data)[end:])
    if content.hexdigest().encode() != data[start:end]:
        raise ValueError("its SHA-256 is not the one that it was written with")
    found: dict[str, str] = json.loads(data[8 : 8 + _length(data)])["__metadata__"]
    return found


def unsealed(data: bytes) -> dict[str, Tensor]:
    """Return the tensors of a sealed file; ValueError for a damaged one."""
    check(data)
    return safetensors.torch.load(data)


def document(values: Mapping[str, Any]) -> bytes:
    """Return a JSON object with its SHA-256."""
    return json.dumps({**values, "sha256": _digest(values)}, indent=2).encode() + b"\n"


def check_document(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object as it was before it was sealed; ValueError if it is not what was sealed."""
    values = {key: value for key, value in found.items() if key != "sha256"}
    if found.get("sha256") != _digest(values):
        raise ValueError("its SHA-256 is not the one that it was written with")
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _length(data: bytes) -> int:
    length = int.from_bytes(data[:8], "little")
    if not 0 < length <= min(len(data) - 8, _LONGEST):
        raise ValueError("it is not a complete safetensors file")
    return length


def _place(data: bytes) -> tuple[int, int]:
    """Return where the SHA-256 stands in a file."""
    found = _PLACE.search(data, 8, 8 + _length(data))
    if found is None:
        raise ValueError("it has no SHA-256 in its metadata")
    return found.span(1)
