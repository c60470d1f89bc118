"""Reading of untrusted files, and their SHA-256 hashes."""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

from fupareto.errors import UserError

LARGEST = 2**26  # bytes of a document, or of a model's header
DEEPEST = 64  # levels of a document


def canonical(value: Any) -> bytes:
    """Return the canonical form of a JSON value: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(value: Any) -> str:
    """Return the SHA-256 of bytes, or of the canonical JSON of anything else."""
    return hashlib.sha256(value if isinstance(value, bytes) else canonical(value)).hexdigest()


def read(path: Path) -> bytes:
    """Read a document, which must be a regular file of bounded size."""
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"cannot read {path}: it is not a file")
        if path.stat().st_size > LARGEST:
            raise UserError(f"cannot read {path}: it has more than {LARGEST >> 20} MB")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def document(path: Path) -> dict[str, Any]:
    """Read a document of the run."""
    return parse(path, read(path))


def parse(path: Path, data: bytes) -> dict[str, Any]:
    """Read JSON, or TOML where the name says so, as plain JSON values that can be written again."""
    try:
        if path.suffix == ".toml":
            settings = tomllib.loads(data.decode())
            found = json.loads(json.dumps(settings, default=str), parse_constant=str)  # JSON has no dates, no infinity
        else:
            found = json.loads(data.decode())
        if not isinstance(found, dict):
            raise ValueError(f"not an object but {type(found).__name__}")
        if not _sane(found, DEEPEST):
            raise ValueError("a number is too large, or it is nested too deeply")
        canonical(found)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    return found


def _sane(value: Any, levels: int) -> bool:
    if isinstance(value, dict | list):
        children = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_sane(child, levels - 1) for child in children)
    return not isinstance(value, int) or abs(value) < 2**63


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, however large."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
