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
