"""Files of a run directory: reading, durable writing with a manifest, and the lock."""

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fupareto import documents, files
from fupareto.errors import UserError
from fupareto.run import lock, stored
from fupareto.run.manifest import Manifest
from fupareto.vocabulary import RETRAINED, SECOND, STAGES

MODELS = tuple(f"{stage}.safetensors" for stage in STAGES)
DOCUMENTS = ("config.toml", "request.json", "rounds.jsonl", "summary.json", "audit.json", "report.html")
CHECKPOINT = "checkpoint/state.safetensors"
DIRECTORIES = ("checkpoint", "replay", "history", "shadows", "training", RETRAINED, SECOND)
LARGEST = 2**28  # bytes of a document


class Storage:
    """The files of a run directory.

    Attributes:
        path: The directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the directory; a second process that asks for it is refused."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock.held(self.path))
            except OSError as error:
                raise self._not_written(lock.FILE, error) from error
            yield

    def refuse_links(self) -> None:
        """Refuse a directory in which a file of the run is a symbolic link: it could lead anywhere."""
        known = {*MODELS, *DOCUMENTS, *DIRECTORIES, "manifest.json", "certificate.json"}
        try:
            linked = sorted(entry.name for entry in os.scandir(self.path) if entry.name in known and entry.is_symlink())
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from error
        if linked:
            raise UserError(
                f"{self.path / linked[0]} is a symbolic link; a run directory holds its files itself. Copy the file "
                "there if you trust it"
            )

    def manifest(self) -> Manifest:
        """Return the manifest as it is on disk; runs of format 1 have none."""
        begun = (self.path / "config.toml").is_file()
        return Manifest(self.path, required=begun and self._toml("config.toml").get("format") != 1)

    # Reading -----------------------------------------------------------------------------------------------------

    def _read(self, name: str, most: int | None = LARGEST) -> bytes:
        try:
            return files.read(self.path / name, most)
        except OSError as error:
            raise UserError(f"cannot read {self.path / name}: {error.strerror}") from error

    def _json(self, name: str, shape: type[BaseModel]) -> dict[str, Any]:
        """Read a JSON file of the run, which must have this shape."""
        if not (self.path / name).is_file():
            raise UserError(f"{self.path} has no {name}; is the run finished?")
        try:
            return stored.check(documents.parse_object(self._read(name)), shape)
        except ValueError as error:
            raise UserError(f"{self.path / name} is damaged: {error}") from error

    def _toml(self, name: str) -> dict[str, Any]:
        try:
            return stored.check(documents.parse_toml(self._read(name)), stored.Config)
        except ValueError as error:
            raise UserError(f"{self.path / name} is damaged: {error}") from error

    # Writing -----------------------------------------------------------------------------------------------------

    def _write(self, contents: Mapping[str, bytes], complete: Sequence[str] = ()) -> None:
        """Replace files, and list them in the manifest.

        Args:
            contents: New content by name.
            complete: Files that are listed from now on because they do not change any more.
        """
        with self.locked():
            name = "manifest.json"
            try:
                manifest = self.manifest()
                manifest.adopt(complete)
                manifest.announce(contents)
                for name, data in contents.items():
                    files.put(self.path / name, data)
                name = "manifest.json"
                manifest.settle(contents)
            except OSError as error:
                raise self._not_written(name, error) from error

    def _mkdir(self, path: Path) -> list[Path]:
        try:
            return files.make_directory(path)
        except OSError as error:
            raise UserError(f"cannot create the directory {path}: {error.strerror}") from error

    def _not_written(self, name: str, error: OSError) -> UserError:
        """Return the error for a file that could not be written, with advice for the cause."""
        advice = {
            errno.ENOSPC: "free some space and continue with --resume",
            errno.EROFS: "the directory is read-only; choose another --out",
            errno.EACCES: "no permission to write there; choose another --out",
        }.get(error.errno or 0, "fix the cause and continue with --resume")
        return UserError(
            f"cannot write {self.path / name}: {error.strerror}; {advice}. Files already written are complete"
        )
