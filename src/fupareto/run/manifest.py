"""Manifest of a run directory: the SHA-256 of every file, by which damage and loss are found.

    {"format": 1, "files": {"config.toml": ["<sha256>"], …}, "removed": {"initial.safetensors": {"when": …, …}}}

A file has one entry, the SHA-256 of its content. While a file is written it has two, of the content before and after,
where null stands for a file that does not exist. So the manifest is true at every moment, also after a power loss.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fupareto import files
from fupareto.errors import UserError

FILE = "manifest.json"
LARGEST = 2**24  # bytes
Entry = list[str | None]


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def hash_of(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if it does not exist."""
    try:
        return sha256(files.read(path))
    except FileNotFoundError:
        return None


class Manifest:
    """The manifest of a run directory, as it is on disk.

    Args:
        path: The run directory.
        required: Whether a missing manifest is an error; runs of format 1 have none.
    """

    def __init__(self, path: Path, required: bool) -> None:
        self.path = path
        self.files, self.removed = _load(path / FILE, required)

    def announce(self, coming: Mapping[str, bytes | None]) -> None:
        """Write down what files will contain, before they are written; None for a file that will be removed."""
        for name, data in coming.items():
            after = None if data is None else sha256(data)
            self.files[name] = [*dict.fromkeys((hash_of(self.path / name), after))]
        self._save()

    def settle(self, names: Iterable[str]) -> None:
        """Write down that announced changes are complete."""
        for name in names:
            after = self.files[name][-1]
            if after is None:
                del self.files[name]
            else:
                self.files[name] = [after]
                self.removed.pop(name, None)
        self._save()

    def adopt(self, names: Iterable[str]) -> None:
        """Write down existing files, which do not change any more."""
        self.files |= {name: [hash_of(self.path / name)] for name in names if (self.path / name).is_file()}

    def purge(self, names: Iterable[str]) -> None:
        """Write down that files are removed for good: they are not missed from then on."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        for name in names:
            known = self.files.pop(name, [None])
            self.removed[name] = {"when": when, "sha256": known[-1]}
        self._save()

    def check(self) -> None:
        """Raise UserError for the first file that is missing or does not have its SHA-256."""
        for name in self.files:
            if wrong := self.wrong(name):
                raise UserError(wrong)

    def wrong(self, name: str) -> str:
        """Return what is wrong with a file; empty if nothing is."""
        for _ in range(3):  # a process that writes may have been faster than this one
            try:
                found = hash_of(self.path / name)
            except OSError as error:
                return f"cannot read {self.path / name}: {error.strerror}"
            if name not in self.files or found in self.files[name]:
                return ""
            self.files, self.removed = _load(self.path / FILE, required=True)
        if found is None:
            return (
                f"{self.path / name} is missing, although {FILE} lists it; restore it from a copy, or repeat the "
                "run in another directory"
            )
        return (
            f"{self.path / name} is damaged: its SHA-256 is not that in {FILE}; restore it from a copy, or repeat the "
            "run in another directory"
        )

    def _save(self) -> None:
        content: dict[str, Any] = {"format": 1, "files": self.files}
        if self.removed:
            content["removed"] = self.removed
        files.put(self.path / FILE, json.dumps(content, indent=1).encode() + b"\n")


def _load(path: Path, required: bool) -> tuple[dict[str, Entry], dict[str, Any]]:
    try:
        raw = json.loads(files.read(path, LARGEST))
        entries, removed = raw["files"], raw.get("removed", {})
        if raw["format"] != 1 or not isinstance(removed, dict) or not all(map(_fits, entries.items())):
            raise ValueError("it is not a manifest of format 1")
        return entries, removed
    except FileNotFoundError:
        if required:
            raise UserError(
                f"{path} is missing, so the files of the run cannot be checked; restore it from a copy"
            ) from None
        return {}, {}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}; restore it from a copy") from error


def _fits(entry: tuple[str, Any]) -> bool:
    """Return whether an entry names a file within the directory, and holds one or two hashes."""
    name, hashes = entry
    plain = not name.startswith("/") and ".." not in name.split("/") and name.isprintable()
    known = isinstance(hashes, list) and 1 <= len(hashes) <= 2
    return plain and known and all(h is None or (isinstance(h, str) and len(h) == 64) for h in hashes)
