"""Run directory: reading and writing of its files, each of which is replaced atomically.

    config.toml            resolved configuration, with versions and seed
    request.json           what is to be forgotten, and when the request was received (unlearning runs)
    rounds.jsonl           one line per round
    initial.safetensors    unlearned.safetensors    recovered.safetensors
    checkpoint/state.safetensors   the last complete state, until the run is finished
    replay/                states of some rounds, from which they can be computed again (replay.py)
    earlier.json           what earlier requests forgot, measured again (runs that answer requests of a ledger)
    summary.json  audit.json  report.html      the result
    manifest.json          SHA-256 of the files above
    .lock                  while a process writes

A round is complete once its checkpoint is written. Lines of ``rounds.jsonl`` after the round of the checkpoint belong
to an interrupted round and are dropped when the run is resumed; the checkpoint knows the SHA-256 of the lines before.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import safetensors.torch
from torch import Tensor

from fupareto import files, seal, serial
from fupareto.errors import UserError
from fupareto.run import lock, manifest, stored
from fupareto.run.records import Records
from fupareto.run.storage import CHECKPOINT
from fupareto.vocabulary import STAGES

FORMAT = 2
T = TypeVar("T")
READABLE = (1, FORMAT)  # runs of format 1 have no manifest, and their checkpoints are not sealed
BEFORE_CONFIG = {"training", "request.json", manifest.FILE, lock.FILE, "demo.json"}  # may exist without config.toml
ORIGIN = ("versions", "trained", "training", "ridge")  # entries of config.toml in which a resumed run may differ


class Run(Records):
    """A run directory."""

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], request: Mapping[str, Any] | None) -> "Run":
        """Create the directory with its configuration and request; refuse one that already has content."""
        import tomli_w

        cls.check_free(path)
        run = cls(path)
        run._mkdir(path)
        with run.locked():
            cls.check_free(path)
            contents = {}
            if request is not None:
                received = datetime.now(UTC).isoformat(timespec="seconds")
                contents["request.json"] = _json_bytes({**request, "received": received})
            contents["config.toml"] = tomli_w.dumps({"format": FORMAT, **without_none(config)}).encode()
            run._write(contents)  # config.toml last: it marks a run that was begun
            run._tidy()
        return run

    @classmethod
    @contextlib.contextmanager
    def held(cls, path: Path, resume: bool) -> Iterator[None]:
        """Hold the lock of a run that is to be created or resumed; a directory that stays empty is removed again."""
        if not (resume and cls.begun(path)):
            cls.check_free(path)
        run = cls(path)
        made = run._mkdir(path)
        try:
            with run.locked():
                yield
        finally:
            for place in reversed(made):
                files.remove_empty(place)

    @staticmethod
    def check_free(path: Path) -> None:
        """Refuse a path that already exists with content other than that of a run killed before its config.toml."""
        if path.exists() and (not path.is_dir() or not all(map(_early, path.iterdir()))):
            raise UserError(f"{path} already exists; continue the run with --resume, or choose another --out")

    @classmethod
    def make(cls, path: Path, config: Mapping[str, Any], request: Mapping[str, Any] | None, resume: bool) -> "Run":
        """Create the directory, or with ``resume`` open an existing one, whose configuration and request must match.

        The entries ``versions``, ``trained``, ``training`` and ``ridge`` of the configuration may differ.
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
        run.tidy()
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Open an existing run directory; refuse other directories, other formats, and one that is damaged.

        Every file must have the SHA-256 of the manifest, and none may be a symbolic link.
        """
        run = cls(path)
        if not path.is_dir():
            raise UserError(f"there is no run directory {path}")
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} is not a run directory: it has no config.toml")
        run.refuse_links()
        found = run.config.get("format")
        if found not in READABLE:
            raise UserError(
                f"{path} is a run directory of format {found}; this version reads format {FORMAT}. "
                "Use the version that wrote it (see [versions] in its config.toml)"
            )
        run.manifest().check()
        return run

    @property
    def request(self) -> dict[str, Any]:
        """Return the request of an unlearning run (request.json)."""
        return self._json("request.json", stored.Asked)

    @property
    def summary(self) -> dict[str, Any]:
        """Return the summary (summary.json)."""
        return self._json("summary.json", stored.Summary)

    @property
    def audit(self) -> dict[str, Any] | None:
        """Return the audit (audit.json); None where there is none, or where it was interrupted before its summary."""
        if not (self.path / "audit.json").is_file() or self._interrupted("summary.json"):
            return None
        return self._json("audit.json", stored.Audit)

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

    def save_replay(self, round_: int, before: Any, after: Any) -> None:
        """Keep the states before and after a round for a replay."""
        name = f"replay/{round_:05}"
        with self.locked():
            self._mkdir(self.path / "replay")
            try:
                for suffix, state in (("", before), (".after", after)):
                    sealed = seal.seal(serial.to_bytes(state, sha256=seal.BLANK))
                    files.put(self.path / f"{name}{suffix}.safetensors", sealed)
            except OSError as error:
                raise self._not_written(name, error) from error

    def has_replay(self, round_: int) -> bool:
        """Return whether the state before a round was kept."""
        return (self.path / f"replay/{round_:05}.after.safetensors").is_file()

    def load_replay(self, round_: int, cls: type[T]) -> tuple[T, T]:
        """Return the states before and after a round."""
        before, after = (self._state(f"replay/{round_:05}{suffix}.safetensors", cls) for suffix in ("", ".after"))
        return before, after

    def _state(self, name: str, cls: type[T]) -> T:
        try:
            data = self._read(name, None)
            seal.check(data)
            return serial.from_bytes({cls.__name__: cls}, data)
        except ValueError as error:
            raise UserError(f"the state {self.path / name} is damaged: {error}") from error

    # Models and results ------------------------------------------------------------------------------------------

    def save_model(self, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """Write the model of a stage, as tensors by name."""
        data = safetensors.torch.save({name: t.cpu().contiguous() for name, t in tensors.items()}, {"stage": stage})
        self._write({_model(stage): data})

    def load_model(self, stage: str) -> dict[str, Tensor] | None:
        """Return the model of a stage, as tensors by name; None if the run has not reached the stage."""
        name = _model(stage)
        if not (self.path / name).exists():
            if gone := self.manifest().removed.get(name):
                raise UserError(
                    f"{self.path / name} was purged at {gone.get('when')}, so the run cannot be used for this"
                )
            return None
        try:
            return safetensors.torch.load(self._read(name, None))
        except safetensors.SafetensorError as error:
            raise UserError(f"the model {self.path / name} is damaged: {error}") from error

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which marks the run as finished."""
        self.save_results(summary, None)

    def save_results(self, summary: Mapping[str, Any], audit: Mapping[str, Any] | None) -> None:
        """Write the audit, if there is one, and then the summary, which marks the run as finished."""
        contents = {} if audit is None else {"audit.json": _json_bytes(audit)}
        with self.locked():
            self._write({**contents, "summary.json": _json_bytes(summary)}, complete=("rounds.jsonl",))
            self._end()

    def save_earlier(self, earlier: Mapping[str, Any]) -> None:
        """Write what earlier requests forgot, measured on this run's model."""
        self._write({"earlier.json": _json_bytes(earlier)})

    def save_report(self, html: str) -> Path:
        """Write the report and return its path; the manifest leaves it out, since it can be made again."""
        with self.locked():
            try:
                files.put(self.path / "report.html", html.encode())
            except OSError as error:
                raise self._not_written("report.html", error) from error
        return self.path / "report.html"

    def _interrupted(self, name: str) -> bool:
        """Return whether a file was announced, but is still the one before."""
        entry = self.manifest().files.get(name, [])
        return len(entry) == 2 and manifest.hash_of(self.path / name) == entry[0]

    def tidy(self) -> None:
        """Remove what a killed process has left: its lock, temporary files, the checkpoint of a finished run."""
        with self.locked():
            self._tidy()
            if self.finished:
                self._end()

    def _tidy(self) -> None:
        """Remove the temporary files of a process that was killed."""
        for folder in (self.path, (self.path / CHECKPOINT).parent, self.path / "replay"):
            if folder.is_dir():
                files.remove_parts(folder)

    def _end(self) -> None:
        """Remove the checkpoint of a finished run: it holds the state of a method that dealt with the forgotten."""
        try:
            files.remove(self.path / CHECKPOINT)
            files.remove_empty((self.path / CHECKPOINT).parent)
        except OSError as error:
            raise UserError(f"cannot remove {self.path / CHECKPOINT}: {error.strerror}") from error


def _early(path: Path) -> bool:
    """Return whether a file may exist in a directory without a run: what a killed process leaves."""
    return path.name in BEFORE_CONFIG or bool(files.PART.fullmatch(path.name))


def _model(stage: str) -> str:
    """Return the file of a stage's model; stages are those of a fixed list, whatever a file says."""
    if stage not in STAGES:
        raise UserError(f"there is no stage {stage!r}; there are {', '.join(STAGES)}")
    return f"{stage}.safetensors"


def _json_bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2, allow_nan=False).encode() + b"\n"


def without_none(value: Any) -> Any:
    """Return a value without the entries that are None, which TOML cannot represent."""
    if isinstance(value, Mapping):
        return {k: without_none(v) for k, v in value.items() if v is not None}
    return [without_none(v) for v in value] if isinstance(value, list | tuple) else value


def refuse_certified(path: Path) -> None:
    """Refuse to overwrite the results of a run that has a certificate."""
    if (path / "certificate.json").is_file():
        raise UserError(
            f"{path} has a certificate, which would not match new results; check it with `fupareto verify`, "
            "or move certificate.json elsewhere first"
        )
