"""Rounds and checkpoints of a run directory."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fupareto import documents, files, seal, serial
from fupareto.errors import UserError
from fupareto.run import stored
from fupareto.run.manifest import sha256
from fupareto.run.storage import CHECKPOINT, Storage

T = TypeVar("T")


@dataclass
class _Lines:
    """What ``rounds.jsonl`` holds, so that a checkpoint can say it without reading the file again."""

    size: int
    digest: Any  # a hash object of hashlib


class Records(Storage):
    """The part of a run directory that grows round by round."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lines: _Lines | None = None
        self.waiting: dict[str, Any] | None = None  # record of the last round in the checkpoint, without a measurement

    @property
    def config(self) -> dict[str, Any]:
        """Return the configuration (config.toml)."""
        return self._toml("config.toml")

    def append(self, record: Mapping[str, Any]) -> None:
        """Append the record of a round to ``rounds.jsonl``."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        with self.locked():
            lines = self._so_far()
            try:
                files.append(self.path / "rounds.jsonl", line)
            except OSError as error:
                raise self._not_written("rounds.jsonl", error) from error
            lines.size += len(line)
            lines.digest.update(line)

    def _so_far(self) -> _Lines:
        """Return what rounds.jsonl holds."""
        if self._lines is None:
            data = self._read("rounds.jsonl", None) if (self.path / "rounds.jsonl").exists() else b""
            self._lines = _Lines(len(data), hashlib.sha256(data))
        return self._lines

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records in the complete lines of ``rounds.jsonl``."""
        path = self.path / "rounds.jsonl"
        lines = self._read("rounds.jsonl", None).split(b"\n")[:-1] if path.is_file() else []
        records = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(stored.check(documents.parse_object(line), stored.Record))
            except ValueError as error:
                raise UserError(f"{path} is damaged in line {number}: {error}") from error
        return records

    def save_state(self, state: Any, waiting: Mapping[str, Any] | None = None) -> None:
        """Replace the checkpoint, which also says what ``rounds.jsonl`` holds.

        Args:
            state: The state of the method.
            waiting: Record of the last round, where it is not in ``rounds.jsonl`` because a measurement is missing.
        """
        with self.locked():
            lines = self._so_far()
            about = json.dumps({"size": lines.size, "sha256": lines.digest.hexdigest(), "waiting": waiting})
            data = seal.seal(serial.to_bytes(state, rounds=about, sha256=seal.BLANK))
            self._mkdir(self.path / "checkpoint")
            try:
                files.put(self.path / CHECKPOINT, data)
            except OSError as error:
                raise self._not_written(CHECKPOINT, error) from error

    def load_state(self, cls: type[T]) -> T | None:
        """Return the state of the checkpoint, and drop the records of later rounds; None without a checkpoint."""
        if not (self.path / CHECKPOINT).exists():
            if self.rounds():
                raise UserError(
                    f"{self.path} has rounds but no checkpoint, so it cannot be resumed; start a new run with "
                    "another --out"
                )
            return None
        data = self._read(CHECKPOINT, None)
        try:
            about = seal.check(data).get("rounds") if self.config.get("format") != 1 else None
            state = serial.from_bytes({cls.__name__: cls}, data)
            lines = None if about is None else json.loads(about)
        except ValueError as error:
            raise UserError(
                f"the checkpoint {self.path / CHECKPOINT} is damaged ({error}). "
                "The models and rounds of the run are not affected; start a new run with another --out"
            ) from error
        self._keep_lines(self._first_lines(lines, state.round))  # type: ignore[attr-defined]
        self.waiting = lines.get("waiting") if lines else None
        return state

    def _first_lines(self, lines: Mapping[str, Any] | None, done: int) -> bytes:
        """Return the lines of the rounds up to a checkpoint; refuse if they are no longer all there.

        Args:
            lines: Size and SHA-256 of these lines, as the checkpoint says; None in a run of format 1.
            done: Number of rounds.
        """
        name = "rounds.jsonl"
        if lines is None:
            kept = [record for record in self.rounds() if record["round"] <= done]
            return b"".join(json.dumps(record).encode() + b"\n" for record in kept)
        found = self._read(name, None) if (self.path / name).exists() else b""
        first = found[: lines["size"]]
        if sha256(first) != lines["sha256"]:
            raise UserError(
                f"{self.path / name} is damaged: lines of the {done} rounds before the checkpoint are missing or were "
                f"changed ({len(found)} of {lines['size']} bytes are there); restore the file from a copy, or start a "
                "new run with another --out"
            )
        return first

    def _keep_lines(self, data: bytes) -> None:
        """Replace rounds.jsonl unless it holds just these lines."""
        path, self._lines = self.path / "rounds.jsonl", None
        if path.exists() and path.stat().st_size == len(data):
            return
        with self.locked():
            try:
                files.put(path, data)
            except OSError as error:
                raise self._not_written(path.name, error) from error
