"""The run directory: its only reader and writer. Every file is replaced whole or not at all.

    config.toml            resolved configuration, with versions and seed
    request.json           what is to be forgotten, and when it came in (unlearning runs)
    rounds.jsonl           one line per round
    initial.safetensors    unlearned.safetensors    recovered.safetensors
    checkpoint/state.safetensors   the last complete state
    summary.json  audit.json  report.html      the result

A round is on disk once its checkpoint is: lines of ``rounds.jsonl`` after the checkpoint's round are those of a
round that was cut off, and are dropped when the run resumes.
"""

import errno
import json
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import safetensors.torch
from torch import Tensor

from fupareto import serial
from fupareto.errors import UserError
from fupareto.files import put

FORMAT = 1
BEFORE_CONFIG = {"training", "request.json", ".request.json.part", ".config.toml.part"}  # of a run that never began
ORIGIN = ("versions", "trained", "training")  # entries of config.toml in which a resumed run may differ
T = TypeVar("T")


class Run:
    """A run directory, opened or newly made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], request: Mapping[str, Any] | None) -> "Run":
        """Make the directory; one that holds anything already is left alone."""
        cls.check_free(path)
        run = cls(path)
        run._mkdir(path)
        if request is not None:
            received = datetime.now(UTC).isoformat(timespec="seconds")
            run._write("request.json", json.dumps({**request, "received": received}, indent=2).encode() + b"\n")
        import tomli_w

        run._write("config.toml", tomli_w.dumps({"format": FORMAT, **without_none(config)}).encode())
        return run

    @staticmethod
    def check_free(path: Path) -> None:
        """Refuse a place that holds anything already, except what a run leaves that never began."""
        if path.exists() and (not path.is_dir() or any(p.name not in BEFORE_CONFIG for p in path.iterdir())):
            raise UserError(f"{path} is there already; continue it with --resume, or choose another --out")

    @classmethod
    def make(cls, path: Path, config: Mapping[str, Any], request: Mapping[str, Any] | None, resume: bool) -> "Run":
        """Make the directory, or with ``resume`` open it again, if it was made for the same work.

        ``versions``, ``trained`` and ``training`` say where the work comes from, not what it is, and may differ.
        """
        if not (resume and cls.begun(path)):
            return cls.create(path, config, request)
        run = cls.open(path)
        stored, wanted = run.config, without_none(config)
        differing = [k for k in wanted if k not in ORIGIN and stored.get(k) != wanted[k]]
        if request is not None and {k: v for k, v in run.request.items() if k != "received"} != request:
            differing.append("request")
        if differing:
            raise UserError(
                f"{path} was made for something else (another {', '.join(differing)}); resume it with the settings "
                "it was started with (see its config.toml), or choose another --out"
            )
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Open an existing run directory of this format."""
        run = cls(path)
        if not path.is_dir():
            raise UserError(f"there is no run directory {path}")
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} is not a run directory: it has no config.toml")
        found = run.config.get("format")
        if found != FORMAT:
            raise UserError(
                f"{path} is a run directory of format {found}; this version reads format {FORMAT}. "
                "Use the version that wrote it (see [versions] in its config.toml)"
            )
        return run

    @property
    def config(self) -> dict[str, Any]:
        """Return the resolved configuration."""
        try:
            return tomllib.loads(self._read("config.toml").decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{self.path / 'config.toml'} is damaged: {error}") from error

    @property
    def request(self) -> dict[str, Any]:
        """Return the request of an unlearning run."""
        return self._json("request.json", "clients")

    @property
    def summary(self) -> dict[str, Any]:
        """Return the result."""
        return self._json("summary.json", "method", "dataset", "forget", "stages", "cost", "phases", "verdict")

    @property
    def audit(self) -> dict[str, Any] | None:
        """Return the audit, where there is one."""
        if not (self.path / "audit.json").is_file():
            return None
        return self._json("audit.json", "membership", "exclusivity", "verdict")

    @staticmethod
    def begun(path: Path) -> bool:
        """Whether there is a run to resume; one that was killed before its configuration was written has not begun."""
        return (path / "config.toml").is_file()

    @property
    def trains(self) -> bool:
        """Whether the run answers no request."""
        return not (self.path / "request.json").is_file()

    @property
    def finished(self) -> bool:
        """Whether the run has a result."""
        return (self.path / "summary.json").is_file()

    # Rounds and checkpoints --------------------------------------------------------------------------------------

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a round's line."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            with (self.path / "rounds.jsonl").open("ab") as file:
                file.write(line)
        except OSError as error:
            raise self._trouble("rounds.jsonl", error) from error

    def rounds(self) -> list[dict[str, Any]]:
        """Return the complete lines of ``rounds.jsonl``."""
        path = self.path / "rounds.jsonl"
        lines = self._read("rounds.jsonl").split(b"\n")[:-1] if path.is_file() else []
        records = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(_parsed(line, "round", "stage", "phase"))
            except ValueError as error:
                raise UserError(f"{path} is damaged in line {number}: {error}") from error
        return records

    def save_state(self, state: Any) -> None:
        """Replace the checkpoint."""
        self._mkdir(self.path / "checkpoint")
        self._write("checkpoint/state.safetensors", serial.to_bytes(state))

    def load_state(self, cls: type[T]) -> T | None:
        """Return the last complete state, and drop the lines of rounds after it; None before the first one."""
        name = "checkpoint/state.safetensors"
        if not (self.path / name).is_file():
            return None
        try:
            state = serial.from_bytes({cls.__name__: cls}, self._read(name))
        except ValueError as error:
            raise UserError(
                f"the checkpoint {self.path / name} is damaged ({error}). "
                "The models and rounds beside it are untouched; start again with another --out"
            ) from error
        done = state.round  # type: ignore[attr-defined]
        kept = [record for record in self.rounds() if record["round"] <= done]
        self._write("rounds.jsonl", b"".join(json.dumps(record).encode() + b"\n" for record in kept))
        return state

    # Models and results ------------------------------------------------------------------------------------------

    def save_model(self, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """Write the model of a stage, by parameter names, as a state dict has them."""
        data = safetensors.torch.save({name: t.cpu().contiguous() for name, t in tensors.items()}, {"stage": stage})
        self._write(f"{stage}.safetensors", data)

    def load_model(self, stage: str) -> dict[str, Tensor] | None:
        """Return the model of a stage, or None if the run has not come to it."""
        name = f"{stage}.safetensors"
        if not (self.path / name).is_file():
            return None
        try:
            return safetensors.torch.load(self._read(name))
        except safetensors.SafetensorError as error:
            raise UserError(f"the model {self.path / name} is damaged: {error}") from error

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the result."""
        self._write("summary.json", json.dumps(summary, indent=2, allow_nan=False).encode() + b"\n")

    def save_audit(self, audit: Mapping[str, Any]) -> None:
        """Write the audit."""
        self._write("audit.json", json.dumps(audit, indent=2, allow_nan=False).encode() + b"\n")

    def save_results(self, summary: Mapping[str, Any], audit: Mapping[str, Any] | None) -> None:
        """Write the audit, if there is one, and then the summary, which says that the run is finished."""
        if audit is not None:
            self.save_audit(audit)
        self.save_summary(summary)

    def save_report(self, html: str) -> Path:
        """Write the report and return its path."""
        self._write("report.html", html.encode())
        return self.path / "report.html"

    # Files -------------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {self.path / name}: {error.strerror}") from error

    def _json(self, name: str, *keys: str) -> dict[str, Any]:
        if not (self.path / name).is_file():
            raise UserError(f"{self.path} has no {name}; has the run come to its end?")
        try:
            return _parsed(self._read(name), *keys)
        except ValueError as error:
            raise UserError(f"{self.path / name} is damaged: {error}") from error

    def _mkdir(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the directory {path}: {error.strerror}") from error

    def _write(self, name: str, data: bytes) -> None:
        try:
            put(self.path / name, data)
        except OSError as error:
            raise self._trouble(name, error) from error

    def _trouble(self, name: str, error: OSError) -> UserError:
        advice = {
            errno.ENOSPC: "free some space and continue with --resume",
            errno.EROFS: "the directory is read-only; choose another --out",
            errno.EACCES: "no permission to write there; choose another --out",
        }.get(error.errno or 0, "mend it and continue with --resume")
        return UserError(f"cannot write {self.path / name}: {error.strerror}; {advice}. What is on disk is whole")


def _parsed(data: bytes, *keys: str) -> dict[str, Any]:
    """Read a JSON object that has these keys; ValueError for anything else."""
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"not an object but {type(found).__name__}")
    if absent := [key for key in keys if key not in found]:
        raise ValueError(f"it lacks {', '.join(absent)}")
    return found


def without_none(value: Any) -> Any:
    """Drop empty settings: TOML has no null."""
    if isinstance(value, Mapping):
        return {k: without_none(v) for k, v in value.items() if v is not None}
    return [without_none(v) for v in value] if isinstance(value, list | tuple) else value
