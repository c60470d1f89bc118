"""Run directory: reading and writing of its files, each of which is replaced atomically.

    config.toml            resolved configuration, with versions and seed
    request.json           what is to be forgotten, and when the request was received (unlearning runs)
    rounds.jsonl           one line per round
    initial.safetensors    unlearned.safetensors    recovered.safetensors
    checkpoint/state.safetensors   the last complete state
    replay/                states of some rounds, from which they can be computed again (replay.py)
    earlier.json           what earlier requests forgot, measured again (runs that answer requests of a ledger)
    summary.json  audit.json  report.html      the result

A round is complete once its checkpoint is written. Lines of ``rounds.jsonl`` after the round of the checkpoint belong
to an interrupted round and are dropped when the run is resumed.
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
BEFORE_CONFIG = {"training", "request.json", ".request.json.part", ".config.toml.part"}  # may exist without config.toml
ORIGIN = ("versions", "trained", "training")  # entries of config.toml in which a resumed run may differ
T = TypeVar("T")


class Run:
    """A run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], request: Mapping[str, Any] | None) -> "Run":
        """Create the directory with its configuration and request; refuse one that already has content."""
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
        """Refuse a path that already exists with content other than that of a run killed before its config.toml."""
        if path.exists() and (not path.is_dir() or any(p.name not in BEFORE_CONFIG for p in path.iterdir())):
            raise UserError(f"{path} already exists; continue the run with --resume, or choose another --out")

    @classmethod
    def make(cls, path: Path, config: Mapping[str, Any], request: Mapping[str, Any] | None, resume: bool) -> "Run":
        """Create the directory, or with ``resume`` open an existing one, whose configuration and request must match.

        The entries ``versions``, ``trained`` and ``training`` of the configuration may differ.
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
                f"cannot resume {path}: its settings do not match (another {', '.join(differing)}); resume it with the "
                "settings it was started with (see its config.toml), or choose another --out"
            )
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Open an existing run directory; refuse other directories and other formats."""
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
        """Return the configuration (config.toml)."""
        try:
            return tomllib.loads(self._read("config.toml").decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{self.path / 'config.toml'} is damaged: {error}") from error

    @property
    def request(self) -> dict[str, Any]:
        """Return the request of an unlearning run (request.json)."""
        return self._json("request.json", "clients")

    @property
    def summary(self) -> dict[str, Any]:
        """Return the summary (summary.json)."""
        return self._json("summary.json", "method", "dataset", "forget", "stages", "cost", "phases", "verdict")

    @property
    def audit(self) -> dict[str, Any] | None:
        """Return the audit (audit.json); None where there is none."""
        if not (self.path / "audit.json").is_file():
            return None
        return self._json("audit.json", "membership", "exclusivity", "verdict")

    @staticmethod
    def begun(path: Path) -> bool:
        """Return whether ``path`` has a run to resume: one whose config.toml was written."""
        return (path / "config.toml").is_file()

    @property
    def trains(self) -> bool:
        """Return whether the run is a training run, without a request."""
        return not (self.path / "request.json").is_file()

    @property
    def finished(self) -> bool:
        """Return whether the run is finished: its summary.json exists."""
        return (self.path / "summary.json").is_file()

    # Rounds and checkpoints --------------------------------------------------------------------------------------

    def append(self, record: Mapping[str, Any]) -> None:
        """Append the record of a round to ``rounds.jsonl``."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            with (self.path / "rounds.jsonl").open("ab") as file:
                file.write(line)
        except OSError as error:
            raise self._not_written("rounds.jsonl", error) from error

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records in the complete lines of ``rounds.jsonl``."""
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
        """Return the state of the checkpoint, and drop the records of later rounds; None without a checkpoint."""
        name = "checkpoint/state.safetensors"
        if not (self.path / name).is_file():
            return None
        try:
            state = serial.from_bytes({cls.__name__: cls}, self._read(name))
        except ValueError as error:
            raise UserError(
                f"the checkpoint {self.path / name} is damaged ({error}). "
                "The models and rounds of the run are not affected; start a new run with another --out"
            ) from error
        done = state.round  # type: ignore[attr-defined]
        kept = [record for record in self.rounds() if record["round"] <= done]
        self._write("rounds.jsonl", b"".join(json.dumps(record).encode() + b"\n" for record in kept))
        return state

    def save_replay(self, round_: int, state: Any, after: Tensor) -> None:
        """Keep the state before a round, and the model after it, for a replay."""
        self._mkdir(self.path / "replay")
        self._write(f"replay/{round_:05}.safetensors", serial.to_bytes(state))
        self._write(f"replay/{round_:05}.after.safetensors", safetensors.torch.save({"w": after.cpu().contiguous()}))

    def has_replay(self, round_: int) -> bool:
        """Return whether the state before a round was kept."""
        return (self.path / f"replay/{round_:05}.after.safetensors").is_file()

    def load_replay(self, round_: int, cls: type[T]) -> tuple[T, Tensor]:
        """Return the state before a round, and the model after it."""
        name = f"replay/{round_:05}"
        try:
            state = serial.from_bytes({cls.__name__: cls}, self._read(f"{name}.safetensors"))
            return state, safetensors.torch.load(self._read(f"{name}.after.safetensors"))["w"]
        except (ValueError, KeyError, safetensors.SafetensorError) as error:
            raise UserError(f"the state {self.path / name}.safetensors is damaged: {error}") from error

    # Models and results ------------------------------------------------------------------------------------------

    def save_model(self, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """Write the model of a stage, as tensors by name."""
        data = safetensors.torch.save({name: t.cpu().contiguous() for name, t in tensors.items()}, {"stage": stage})
        self._write(f"{stage}.safetensors", data)

    def load_model(self, stage: str) -> dict[str, Tensor] | None:
        """Return the model of a stage, as tensors by name; None if the run has not reached the stage."""
        name = f"{stage}.safetensors"
        if not (self.path / name).is_file():
            return None
        try:
            return safetensors.torch.load(self._read(name))
        except safetensors.SafetensorError as error:
            raise UserError(f"the model {self.path / name} is damaged: {error}") from error

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which marks the run as finished."""
        self._write("summary.json", json.dumps(summary, indent=2, allow_nan=False).encode() + b"\n")

    def save_audit(self, audit: Mapping[str, Any]) -> None:
        """Write the audit."""
        self._write("audit.json", json.dumps(audit, indent=2, allow_nan=False).encode() + b"\n")

    def save_results(self, summary: Mapping[str, Any], audit: Mapping[str, Any] | None) -> None:
        """Write the audit, if there is one, and then the summary, which marks the run as finished."""
        if audit is not None:
            self.save_audit(audit)
        self.save_summary(summary)

    def save_earlier(self, earlier: Mapping[str, Any]) -> None:
        """Write what earlier requests forgot, measured on this run's model."""
        self._write("earlier.json", json.dumps(earlier, indent=2, allow_nan=False).encode() + b"\n")

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
        """Read a JSON file of the run that must have these keys."""
        if not (self.path / name).is_file():
            raise UserError(f"{self.path} has no {name}; is the run finished?")
        try:
            return _parsed(self._read(name), *keys)
        except ValueError as error:
            raise UserError(f"{self.path / name} is damaged: {error}") from error

    def _mkdir(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create the directory {path}: {error.strerror}") from error

    def _write(self, name: str, data: bytes) -> None:
        try:
            put(self.path / name, data)
        except OSError as error:
            raise self._not_written(name, error) from error

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


def _parsed(data: bytes, *keys: str) -> dict[str, Any]:
    """Parse a JSON object that has these keys; ValueError for anything else."""
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"it is a {type(found).__name__}, not an object")
    if absent := [key for key in keys if key not in found]:
        raise ValueError(f"missing {', '.join(absent)}")
    return found


def without_none(value: Any) -> Any:
    """Return a value without the entries that are None, which TOML cannot represent."""
    if isinstance(value, Mapping):
        return {k: without_none(v) for k, v in value.items() if v is not None}
    return [without_none(v) for v in value] if isinstance(value, list | tuple) else value
