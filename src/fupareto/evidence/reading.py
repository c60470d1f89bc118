"""Reading of untrusted files, and their SHA-256 hashes."""

import hashlib
import json
from pathlib import Path
from typing import Any

from fupareto import documents
from fupareto.errors import UserError

LARGEST = 2**26  # bytes of a model's header


def canonical(value: Any) -> bytes:
    """Return the canonical form of a JSON value: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(value: Any) -> str:
    """Return the SHA-256 of bytes, or of the canonical JSON of anything else."""
    return hashlib.sha256(value if isinstance(value, bytes) else canonical(value)).hexdigest()


def read(path: Path) -> bytes:
    """Read a document, which must be a regular file of bounded size."""
    return documents.read(path)


def document(path: Path) -> dict[str, Any]:
    """Read a document of the run."""
    return parse(path, read(path))


def parse(path: Path, data: bytes) -> dict[str, Any]:
    """Read JSON, or TOML where the name says so, as plain JSON values that can be written again."""
    try:
        if path.suffix == ".toml":
            settings = json.dumps(documents.parse_toml(data), default=str)  # JSON has no dates, no infinity
            return dict(json.loads(settings, parse_constant=str))
        return documents.parse_object(data, once=False)  # what is there twice is found by comparing bytes
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, however large."""
    try:
        with documents.opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _check_size(path: Path, start: int, tensors: dict[str, Any]) -> None:
    """Raise ValueError for a model whose file does not end with its last tensor."""
    try:
        end = start + max((int(about["data_offsets"][1]) for about in tensors.values()), default=0)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError("its header does not say where its tensors are") from error
    if (size := path.stat().st_size) != end:
        raise ValueError(f"it has {size} bytes, but its header says {end}")


def hash_model(where: Path, stage: str) -> dict[str, str]:
    """Return what identifies a model: its file, and apart from the file's metadata its weights and their layout.

    The same weights are another file as the initial model of the next run: a safetensors file says in its header what
    stage it is. ``layout`` is the header without such metadata (names, types, shapes), ``weights`` that and the
    numbers.
    """
    path = where / f"{stage}.safetensors"
    try:
        with documents.opened(path) as file:
            size = file.read(8)
            if (length := int.from_bytes(size, "little")) > LARGEST:
                raise ValueError("its header is too long")
            header = file.read(length)
            tensors = documents.parse_object(header)
            described = {name: about for name, about in tensors.items() if name != "__metadata__"}
            layout = canonical(described)
            _check_size(path, 8 + length, described)
            whole, weights = hashlib.sha256(size + header), hashlib.sha256(layout)
            while chunk := file.read(2**20):
                whole.update(chunk)
                weights.update(chunk)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"the model {path} is damaged: {error}") from error
    hashes = {"sha256": whole.hexdigest(), "weights": weights.hexdigest(), "layout": sha256(layout)}
    return {"stage": stage, "file": path.name, **hashes}
