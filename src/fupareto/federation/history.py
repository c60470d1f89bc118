"""History of a training: the directory ``history/`` of a training run, and its only reader and writer.

    index.json                      the plan: clients, rounds of training, methods to record for
    federaser/00008/before          the global model before that round
    federaser/00008/003             the fourth client's local model of that round, and its number of samples
    fupga/003                       the fourth client's local model of the last round
    fedau/00799                     the second heads after that round, of the clients that may be forgotten
    rewind/00008                    the global model before that round; rounds are spaced geometrically
    rewind/first.json               the round in which each client first took part
    ridge/003                       the fourth client's sums for a ridge head

Each model is a safetensors file with its own SHA-256, written when it arrives and read when it is needed, so that only
one of them is in memory at a time. ``federaser/00008/clients.json`` and ``fupga/clients.json`` list who took part, so
that a file that is missing is not taken for a client that did not.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fupareto import documents, files, seal
from fupareto.errors import UserError
from fupareto.vocabulary import LARGEST_SETTING, MOST_KEPT

FORMAT = 3  # histories of format 1 have neither lists of clients nor SHA-256
SEALED = 3  # the first format whose JSON files have a SHA-256
LARGEST = 2**26  # bytes of a document
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

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Plan":
        """Return the plan in index.json; raise ValueError or TypeError for values that no plan has."""
        lists = {key: documents.names(raw.get(key, ()), key) for key in ("parts", "clients", "heads")}
        plan = cls(**{**raw, **lists})
        if unknown := set(plan.parts) - set(PARTS) or set(plan.heads) - set(plan.clients):
            raise ValueError(f"{', '.join(map(repr, sorted(unknown)))} is unknown")
        for key, least, most in (("rounds", 1, LARGEST_SETTING), ("keep", 1, MOST_KEPT), ("label_seed", 0, 2**63)):
            value = getattr(plan, key)
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{key} must be an integer from {least} to {most}, not {value!r}")
        return plan

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
        models = {"federaser": min(self.keep, self.rounds) * (len(self.clients) + 1), "fupga": len(self.clients)}
        models |= {"rewind": len(self.rewound), "ridge": 0}  # sums are small
        return {
            part: 4 * (models[part] * parameters if part in models else len(self.heads) * head) for part in self.parts
        }


class History:
    """The directory of a history, opened for reading or writing."""

    def __init__(self, path: Path, parameters: int | None = None, only: Sequence[str] = PARTS) -> None:
        self.path, self.only = path, only
        self.parameters = parameters  # of the model, where it is known: then models of another size are refused

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
        for folder, _, _ in os.walk(path):
            files.remove_parts(Path(folder))  # of a training that was killed
        if (path / "index.json").is_file():
            if history.plan != plan:
                raise UserError(
                    f"{path} contains another history; resume with the settings that the run was started with"
                )
            return history
        try:
            files.make_directory(path)
            free = shutil.disk_usage(path).free
        except OSError as error:
            raise UserError(f"cannot make the directory {path}: {error.strerror}") from error
        if needed > free:
            raise UserError(
                f"recording needs {needed / 1e6:,.0f} MB in {path}, but {free / 1e6:,.0f} MB are free; record for "
                "fewer methods, or keep fewer rounds (keep in [train])"
            )
        history._write("index.json", seal.document({"format": FORMAT, **plan.__dict__}))
        return history

    @classmethod
    def open(cls, path: Path, only: Sequence[str] = PARTS) -> "History | None":
        """Return the history of a training run, or some parts of it; None when nothing was recorded."""
        return cls(path, only=only) if (path / "index.json").is_file() else None

    @property
    def plan(self) -> Plan:
        """The plan of the recording, from index.json."""
        return self._index()[1]

    def _index(self) -> tuple[int, Plan]:
        """Return the format and the plan of the history."""
        try:
            raw = documents.parse_object(documents.read(self.path / "index.json"))
            if (found := raw.get("format", 1)) not in range(1, FORMAT + 1):
                raise ValueError("it is of a later format")
            raw = seal.check_document(raw) if found >= SEALED else raw
            plan = Plan.of({key: value for key, value in raw.items() if key != "format"})
            return found, replace(plan, parts=tuple(part for part in plan.parts if part in self.only))
        except (ValueError, TypeError) as error:
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

    def keep_clients(self, round_: int | None, clients: Sequence[str]) -> None:
        """Keep who took part in a round whose local models are complete, for FedEraser; None for FUPGA."""
        part = "fupga" if round_ is None else f"federaser/{round_:05}"
        self._write(f"{part}/clients.json", seal.document({"clients": list(clients)}))

    def keep_heads(self, round_: int, heads: Mapping[str, Tensor]) -> None:
        """Keep the second heads after a round, and those of the previous round in case the training is interrupted."""
        self._save(f"fedau/{round_:05}", dict(heads))
        with contextlib.suppress(OSError):
            files.remove(self._file(f"fedau/{round_ - 2:05}"))

    def keep_global(self, round_: int, w: Tensor) -> None:
        """Keep the global model before a round, for Rewind."""
        self._save(f"rewind/{round_:05}", {"w": w})

    def keep_first(self, round_: int, clients: Sequence[str]) -> None:
        """Note the round in which clients took part, unless they did in an earlier one."""
        known = self.first()
        new = {i: round_ for i in clients if known.get(i, round_ + 1) > round_}
        if new:
            self._write("rewind/first.json", seal.document({"clients": {**known, **new}}))

    def keep_sums(self, client: str, sums: Mapping[str, Tensor]) -> None:
        """Keep the sums of a client, for a ridge head."""
        self._save(f"ridge/{self._position(client)}", sums)

    # Reading -----------------------------------------------------------------------------------------------------

    def before(self, round_: int) -> Tensor:
        """Return the global model before a stored round."""
        return self._load(f"federaser/{round_:05}/before", "w")["w"]

    def local(self, round_: int, client: str) -> tuple[Tensor, int] | None:
        """Return a client's local model of a stored round and its number of samples; None if it did not take part."""
        return self._sized(f"federaser/{round_:05}", client)

    def last(self, client: str) -> tuple[Tensor, int] | None:
        """Return a client's local model of the last round and its number of samples; None if it did not take part."""
        return self._sized("fupga", client)

    def heads(self, round_: int | None = None) -> dict[str, Tensor]:
        """Return the second heads after a round, by default the last of the training; empty before the first."""
        name = f"fedau/{self.plan.rounds - 1 if round_ is None else round_:05}"
        early = round_ is not None and round_ < 0
        return {} if early or not (self._listed or self._file(name).exists()) else self._load(name)

    def global_before(self, round_: int) -> Tensor:
        """Return the global model before a round that is stored for Rewind."""
        return self._load(f"rewind/{round_:05}", "w")["w"]

    def first(self) -> dict[str, int]:
        """Return the round in which each client first took part."""
        path = self.path / "rewind/first.json"
        try:
            found = self._known_of(path) if path.is_file() else {}
            return {str(i): int(r) for i, r in found.items()}
        except (UserError, AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged: {error}; train again with --record rewind") from error

    def sums(self, client: str) -> dict[str, Tensor] | None:
        """Return the sums of a client; None if it sent none."""
        name = f"ridge/{self._position(client)}"
        return self._tensors(name) if self._file(name).is_file() else None

    # Files -------------------------------------------------------------------------------------------------------

    def _position(self, client: str) -> str:
        clients: Sequence[str] = self._clients
        if client not in clients:
            raise UserError(f"{self.path / 'index.json'} does not name the client {client!r}, which was not recorded")
        return f"{clients.index(client):03}"

    @property
    def _clients(self) -> tuple[str, ...]:
        if not hasattr(self, "_known"):
            self._known: tuple[str, ...] = self.plan.clients
        return self._known

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.safetensors"

    @property
    def _format(self) -> int:
        if not hasattr(self, "_made_as"):
            self._made_as: int = self._index()[0]
        return self._made_as

    @property
    def _listed(self) -> bool:
        """Whether the history lists who took part, and its models have a SHA-256."""
        return self._format > 1

    def _known_of(self, path: Path) -> Any:
        """Return what a JSON file of the history says of clients."""
        found = documents.parse_json(documents.read(path))
        if self._format < SEALED:
            return found
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        return seal.check_document(found).get("clients")

    def _sized(self, folder: str, client: str) -> tuple[Tensor, int] | None:
        name = f"{folder}/{self._position(client)}"
        if client not in self._took_part(folder) if self._listed else not self._file(name).exists():
            return None
        tensors = self._load(name, "w", "size")
        size = tensors.pop("size")
        if size.numel() != 1 or size.is_floating_point() or int(size) < 1:
            raise self._damaged(name, f"its number of samples is {size.tolist()!s:.40}")
        return tensors["w"], int(size)

    def _took_part(self, folder: str) -> list[str]:
        path = self.path / folder / "clients.json"
        try:
            found = self._known_of(path)
            if not isinstance(found, list):
                raise ValueError("it is not a list")
            return found
        except (UserError, ValueError) as error:
            raise UserError(
                f"{path} is missing or damaged ({error}); train again with --record to restore it"
            ) from error

    def _tensors(self, name: str) -> dict[str, Tensor]:
        try:
            data = documents.read(self._file(name), None)
            found = seal.unsealed(data) if self._listed else safetensors.torch.load(data)
            return dict(sorted(found.items()))  # safetensors returns them in any order
        except (UserError, ValueError, safetensors.SafetensorError) as error:
            raise self._damaged(name, error) from error

    def _load(self, name: str, *keys: str) -> dict[str, Tensor]:
        """Read the tensors of a file, which must have these keys; models are finite vectors of float32."""
        tensors = self._tensors(name)
        if absent := [key for key in keys if key not in tensors]:
            raise self._damaged(name, f"it has no {absent[0]}")
        for key, t in tensors.items():
            if key != "size" and not (t.dtype == torch.float32 and t.dim() == 1 and bool(torch.isfinite(t).all())):
                raise self._damaged(name, f"{key!r} is not a vector of finite float32 numbers")
        if "w" in keys and self.parameters not in (None, count := tensors["w"].numel()):
            raise self._damaged(name, f"it has {count} numbers, the model has {self.parameters}")
        return tensors

    def _damaged(self, name: str, why: object) -> UserError:
        return UserError(f"{self._file(name)} is missing or damaged ({why}); train again with --record to restore it")

    def _save(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        self._write(f"{name}.safetensors", seal.sealed(tensors))

    def _write(self, name: str, data: bytes) -> None:
        target = self.path / name
        try:
            files.make_directory(target.parent)
            files.put(target, data)
        except OSError as error:
            raise UserError(
                f"cannot write {target}: {error.strerror}; free disk space and continue with --resume. "
                "Existing files are complete"
            ) from error


def _sized(w: Tensor, size: int) -> dict[str, Any]:
    return {"w": w, "size": torch.tensor(size, device="cpu")}
