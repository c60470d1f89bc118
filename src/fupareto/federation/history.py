"""History of a training: the directory ``history/`` of a training run, and its only reader and writer.

    index.json                      the plan: clients, rounds of training, methods to record for
    federaser/00008/before          the global model before that round
    federaser/00008/003             the fourth client's local model of that round, and its number of samples
    fupga/003                       the fourth client's local model of the last round
    fedau/00799                     the second heads after that round, of the clients that may be forgotten
    rewind/00008                    the global model before that round; rounds are spaced geometrically
    rewind/first.json               the round in which each client first took part
    ridge/003                       the fourth client's sums for a ridge head

Each model is a safetensors file, written when it arrives and read when it is needed, so that only one of them is in
memory at a time.
"""

import contextlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fupareto.errors import UserError
from fupareto.files import put

PARTS = ("federaser", "fupga", "fedau", "rewind", "ridge")  # parts of a history, by the method that needs them


@dataclass(frozen=True)
class Plan:
    """Plan of a recording: what to keep of a training, for which methods.

    Attributes:
        parts: Methods to record for, of :data:`PARTS`.
        clients: Ids of all clients.
        rounds: Rounds of the training.
        keep: Rounds to store for FedEraser.
        heads: Clients that train a second head for FedAU.
        label_seed: Seed of FedAU's wrong labels.
        continued: Whether the training went on from an earlier run, which may have seen any data.
    """

    parts: tuple[str, ...]
    clients: tuple[str, ...]
    rounds: int
    keep: int = 100
    heads: tuple[str, ...] = ()
    label_seed: int = 0
    continued: bool = False

    @property
    def replayed(self) -> tuple[int, ...]:
        """Rounds stored for FedEraser, evenly spaced from the first one on."""
        count = min(self.keep, self.rounds)
        return tuple(k * self.rounds // count for k in range(count))

    @property
    def rewound(self) -> tuple[int, ...]:
        """Rounds before which the global model is stored for Rewind: 0, 1, 2, 3, 4, 6, 8, 12, …, by factors of √2."""
        found = {0}
        step = 1.0
        while step < self.rounds:
            found.add(round(step))
            step *= 2**0.5
        return tuple(sorted(r for r in found if r < self.rounds))

    def bytes(self, parameters: int, head: int) -> dict[str, int]:
        """Return the bytes of each part on disk, without file headers.

        Args:
            parameters: Size of the model.
            head: Size of the last layer.
        """
        models = {"federaser": len(self.replayed) * (len(self.clients) + 1), "fupga": len(self.clients)}
        models |= {"rewind": len(self.rewound), "ridge": 0}  # sums are small
        return {
            part: 4 * (models[part] * parameters if part in models else len(self.heads) * head) for part in self.parts
        }


class History:
    """The directory of a history, opened for reading or writing."""

    def __init__(self, path: Path, only: Sequence[str] = PARTS) -> None:
        self.path, self.only = path, only

    @classmethod
    def create(cls, path: Path, plan: Plan, needed: int) -> "History":
        """Create the directory for ``plan``, or open it again when a training resumes.

        Args:
            path: The directory.
            plan: What to record.
            needed: Bytes that the plan needs on disk.

        Raises:
            UserError: If the directory has another plan, or the disk has too little space.
        """
        history = cls(path)
        if history.path.is_dir() and (path / "index.json").is_file():
            if history.plan != plan:
                raise UserError(
                    f"{path} contains another history; resume with the settings that the run was started with"
                )
            return history
        try:
            path.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(path).free
        except OSError as error:
            raise UserError(f"cannot make the directory {path}: {error.strerror}") from error
        if needed > free:
            raise UserError(
                f"recording needs {needed / 1e6:,.0f} MB in {path}, but {free / 1e6:,.0f} MB are free; record for "
                "fewer methods, or keep fewer rounds (keep in [train])"
            )
        history._write("index.json", json.dumps(plan.__dict__, indent=2).encode() + b"\n")
        return history

    @classmethod
    def open(cls, path: Path, only: Sequence[str] = PARTS) -> "History | None":
        """Return the history of a training run, or some parts of it; None when nothing was recorded."""
        return cls(path, only) if (path / "index.json").is_file() else None

    @property
    def plan(self) -> Plan:
        """The plan of the recording, from index.json."""
        try:
            raw: dict[str, Any] = json.loads((self.path / "index.json").read_text())
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
            plan = Plan(**fields)
            return replace(plan, parts=tuple(part for part in plan.parts if part in self.only))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{self.path / 'index.json'} is damaged: {error}") from error

    # Writing -----------------------------------------------------------------------------------------------------

    def keep_before(self, round_: int, w: Tensor) -> None:
        """Keep the global model before a round, for FedEraser."""
        self._save(f"federaser/{round_:05}/before", {"w": w})

    def keep_local(self, round_: int, client: str, w: Tensor, size: int) -> None:
        """Keep a client's local model of a round, for FedEraser."""
        self._save(f"federaser/{round_:05}/{self._position(client)}", _sized(w, size))

    def keep_last(self, client: str, w: Tensor, size: int) -> None:
        """Keep a client's local model of the last round, for FUPGA."""
        self._save(f"fupga/{self._position(client)}", _sized(w, size))

    def keep_heads(self, round_: int, heads: Mapping[str, Tensor]) -> None:
        """Keep the second heads after a round, and those of the previous round in case the training is interrupted."""
        self._save(f"fedau/{round_:05}", dict(heads))
        with contextlib.suppress(OSError):
            self._file(f"fedau/{round_ - 2:05}").unlink(missing_ok=True)

    def keep_global(self, round_: int, w: Tensor) -> None:
        """Keep the global model before a round, for Rewind."""
        self._save(f"rewind/{round_:05}", {"w": w})

    def keep_first(self, round_: int, clients: Sequence[str]) -> None:
        """Note the round in which clients took part, unless they did in an earlier one."""
        known = self.first()
        new = {i: round_ for i in clients if known.get(i, round_ + 1) > round_}
        if new:
            self._write("rewind/first.json", json.dumps({**known, **new}).encode())

    def keep_sums(self, client: str, sums: Mapping[str, Tensor]) -> None:
        """Keep the sums of a client, for a ridge head."""
        self._save(f"ridge/{self._position(client)}", sums)

    # Reading -----------------------------------------------------------------------------------------------------

    def before(self, round_: int) -> Tensor:
        """Return the global model before a stored round."""
        return self._load(f"federaser/{round_:05}/before")["w"]

    def local(self, round_: int, client: str) -> tuple[Tensor, int] | None:
        """Return a client's local model of a stored round and its number of samples; None if it did not take part."""
        return self._sized(f"federaser/{round_:05}/{self._position(client)}")

    def last(self, client: str) -> tuple[Tensor, int] | None:
        """Return a client's local model of the last round and its number of samples; None if it did not take part."""
        return self._sized(f"fupga/{self._position(client)}")

    def heads(self, round_: int | None = None) -> dict[str, Tensor]:
        """Return the second heads after a round, by default the last of the training; empty before the first."""
        name = f"fedau/{self.plan.rounds - 1 if round_ is None else round_:05}"
        return self._load(name) if self._file(name).is_file() else {}

    def global_before(self, round_: int) -> Tensor:
        """Return the global model before a round that is stored for Rewind."""
        return self._load(f"rewind/{round_:05}")["w"]

    def first(self) -> dict[str, int]:
        """Return the round in which each client first took part."""
        path = self.path / "rewind/first.json"
        try:
            return {str(i): int(r) for i, r in json.loads(path.read_text()).items()} if path.is_file() else {}
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(f"{path} is damaged: {error}; train again with --record rewind") from error

    def sums(self, client: str) -> dict[str, Tensor] | None:
        """Return the sums of a client; None if it sent none."""
        name = f"ridge/{self._position(client)}"
        return self._load(name) if self._file(name).is_file() else None

    # Files -------------------------------------------------------------------------------------------------------

    def _position(self, client: str) -> str:
        clients: Sequence[str] = self._clients
        return f"{clients.index(client):03}"

    @property
    def _clients(self) -> tuple[str, ...]:
        if not hasattr(self, "_known"):
            self._known: tuple[str, ...] = self.plan.clients
        return self._known

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.safetensors"

    def _sized(self, name: str) -> tuple[Tensor, int] | None:
        if not self._file(name).is_file():
            return None
        tensors = self._load(name)
        return tensors["w"], int(tensors["size"])

    def _load(self, name: str) -> dict[str, Tensor]:
        try:
            return safetensors.torch.load_file(self._file(name))
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(
                f"{self._file(name)} is missing or damaged ({error}); train again with --record to restore it"
            ) from error

    def _save(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        self._write(
            f"{name}.safetensors", safetensors.torch.save({k: t.cpu().contiguous() for k, t in tensors.items()})
        )

    def _write(self, name: str, data: bytes) -> None:
        target = self.path / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            put(target, data)
        except OSError as error:
            raise UserError(
                f"cannot write {target}: {error.strerror}; free disk space and continue with --resume. "
                "Existing files are complete"
            ) from error


def _sized(w: Tensor, size: int) -> dict[str, Any]:
    return {"w": w, "size": torch.tensor(size, device="cpu")}
