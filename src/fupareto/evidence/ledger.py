"""Ledger of erasure requests: a directory that belongs to one federation, append-only and hash-chained.

    ledger.jsonl    one entry per line: opened, request, answer, model
    runs/           the runs that answered, each with its certificate
    letters/        letters and records, written from the entries and the runs
    index.html      all requests and runs on one page

Every entry has the SHA-256 of the line before it, a nonce, the time at which it was written and, where a key is used, a
signature of the operator. This is the only reader and writer of ``ledger.jsonl``.
"""

import base64
import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence.keys import Signer
from fupareto.evidence.reading import canonical, parse, read, sha256
from fupareto.evidence.signing import pae
from fupareto.files import put

FORMAT = 1
FILE = "ledger.jsonl"
PAYLOAD = "application/vnd.fupareto.ledger+json"
KINDS = ("opened", "request", "answer", "model")
NEEDED = {
    "opened": ("run", "federation", "weights"),
    "request": ("number", "received", "deadline", "request"),
    "answer": ("requests", "run", "certificate", "weights", "status", "verdict"),
    "model": ("run", "weights", "note"),
}


@dataclass(frozen=True)
class Entry:
    """One line of the ledger.

    Attributes:
        content: The entry.
        sha256: Digest of its line, by which the next one names it.
    """

    content: Mapping[str, Any]
    sha256: str

    @property
    def kind(self) -> str:
        """What the entry records: opened, request, answer or model."""
        return str(self.content["kind"])

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def signed(self) -> tuple[bytes, bytes | None]:
        """Return the bytes that a signature of the entry covers, and the signature; None without one."""
        bare = {key: value for key, value in self.content.items() if key != "signature"}
        held = self.content.get("signature")
        return pae(PAYLOAD, canonical(bare)), base64.b64decode(held["sig"]) if held else None


@dataclass(frozen=True)
class Asked:
    """A request of the ledger, with its answer if there is one."""

    entry: Entry
    answer: Entry | None

    @property
    def number(self) -> int:
        """Number of the request, from 1 on."""
        return int(self.entry["number"])

    @property
    def gone(self) -> list[str]:
        """Clients of the request that can no longer be reached."""
        return list(self.entry.content.get("gone", ()))

    def days_left(self, today: date) -> int:
        """Return the days until the deadline; negative when it has passed."""
        return (date.fromisoformat(self.entry["deadline"]) - today).days


class Ledger:
    """The ledger in a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> "Ledger":
        """Open an existing ledger; refuse one that is damaged or broken."""
        ledger = cls(path)
        if not (path / FILE).is_file():
            raise UserError(f"{path} has no ledger; begin one with: fupareto requests open RUN --ledger {path}")
        if wrong := ledger.flaw():
            raise UserError(f"{path / FILE} is broken: {wrong}")
        return ledger

    @property
    def entries(self) -> list[Entry]:
        """All entries, in their order."""
        lines = read(self.path / FILE).splitlines()
        return [Entry(parse(self.path / FILE, line), sha256(line)) for line in lines]

    @property
    def head(self) -> str:
        """SHA-256 of the newest entry, which stands for all that was written so far."""
        return self.entries[-1].sha256

    def flaw(self) -> str | None:
        """Return why the ledger cannot be trusted, or None: its links, numbers and times must fit."""
        try:
            entries = self.entries
        except UserError as error:
            return str(error)
        before: Entry | None = None
        numbers = 0
        for place, entry in enumerate(entries, 1):
            held = entry.content
            kind = held.get("kind")
            if held.get("format") != FORMAT or kind not in KINDS or any(key not in held for key in NEEDED[kind]):
                return f"entry {place} is not one of format {FORMAT}"
            if held.get("previous") != (before.sha256 if before else None):
                return f"entry {place} does not follow the one before it: a line was changed, removed or added"
            if (kind == "opened") != (place == 1):
                return f"entry {place} opens the ledger, which only the first one does"
            numbers += kind == "request"
            if kind == "request" and held["number"] != numbers:
                return f"entry {place} is request {held['number']}, not {numbers}"
            before = entry
        return None if entries else "it has no entry"

    # Reading -----------------------------------------------------------------------------------------------------

    @property
    def federation(self) -> dict[str, Any]:
        """Whose requests they are: clients, model and where the data come from."""
        return dict(self.entries[0]["federation"])

    @property
    def requests(self) -> list[Asked]:
        """All requests, in the order in which they came."""
        entries = self.entries
        answers = {number: e for e in entries if e.kind == "answer" for number in e["requests"]}
        return [Asked(e, answers.get(e["number"])) for e in entries if e.kind == "request"]

    def request(self, number: int) -> Asked:
        """Return one request."""
        found = self.requests
        if not 1 <= number <= len(found):
            raise UserError(f"there is no request {number} in {self.path}; it has {len(found)}")
        return found[number - 1]

    @property
    def answers(self) -> list[Entry]:
        """All answers, in their order."""
        return [entry for entry in self.entries if entry.kind == "answer"]

    @property
    def in_force(self) -> Entry:
        """The entry of the model that is in use now: the last answer, an adopted model, or the first one."""
        return next(entry for entry in reversed(self.entries) if entry.kind != "request")

    def run_of(self, entry: Entry) -> Path:
        """Return the path of the run, or model file, of an entry."""
        return self.path / str(entry["run"])

    def certificate_of(self, entry: Entry) -> Path:
        """Return the path of the certificate of an answer."""
        return self.run_of(entry) / "certificate.json"

    @property
    def forgotten(self) -> list[str]:
        """Clients that answered requests have forgotten as wholes."""
        return [i for asked in self.requests if asked.answer for i in asked.entry["request"].get("clients", ())]

    # Writing -----------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, run: Path, facts: Mapping[str, Any], signer: Signer | None = None) -> "Ledger":
        """Begin a ledger for a federation whose model is that of a finished run.

        Args:
            path: Directory to write.
            run: The run.
            facts: ``federation`` and ``weights`` of the run's model.
            signer: Key of the operator.
        """
        ledger = cls(path)
        if (path / FILE).exists():
            raise UserError(f"{path} already has a ledger; a federation has one")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create the directory {path}: {error.strerror}") from error
        ledger._append("opened", {"run": ledger.relative(run), **facts}, signer)
        return ledger

    def relative(self, path: Path) -> str:
        """Return a path as seen from the ledger's directory."""
        return Path(os.path.relpath(path.resolve(), self.path.resolve())).as_posix()

    def add(
        self,
        request: Mapping[str, Any],
        received: date,
        deadline: date,
        signer: Signer | None = None,
        **more: Any,
    ) -> Asked:
        """Add a request.

        Args:
            request: What is to be forgotten, in the format of request.json.
            received: Day on which it arrived.
            deadline: Day by which it must be answered.
            signer: Key of the operator.
            **more: ``reference`` (a case number), ``gone`` (clients that cannot be reached any more).
        """
        self._check(request, received, deadline)
        number = len(self.requests) + 1
        dates = {"received": received.isoformat(), "deadline": deadline.isoformat()}
        self._append("request", {"number": number, **dates, "request": dict(request), **more}, signer)
        return self.request(number)

    def answer(self, facts: Mapping[str, Any], signer: Signer | None = None) -> Entry:
        """Append the answer to one or more requests."""
        return self._append("answer", facts, signer)

    def adopt(self, facts: Mapping[str, Any], signer: Signer | None = None) -> Entry:
        """Append that another model is in use from now on, for instance one that was trained further."""
        return self._append("model", facts, signer)

    def _check(self, request: Mapping[str, Any], received: date, deadline: date) -> None:
        """Refuse a request that makes no sense for this federation."""
        if received > datetime.now(UTC).date() + timedelta(days=1):
            raise UserError(f"the request cannot have been received on {received}, which is in the future")
        if deadline < received:
            raise UserError(f"the deadline {deadline} is before the day on which the request was received, {received}")
        clients, left = self.federation["clients"], self.forgotten
        for client in (*request.get("clients", ()), *request.get("samples", {})):
            if client not in clients:
                raise UserError(f"no client {client!r} in the federation; it has {', '.join(clients)}")
            if client in left:
                raise UserError(f"client {client!r} was forgotten already; see: fupareto requests list")

    def _append(self, kind: str, content: Mapping[str, Any], signer: Signer | None) -> Entry:
        with self._locked():
            present = read(self.path / FILE) if (self.path / FILE).is_file() else b""
            if present and (wrong := self.flaw()):
                raise UserError(f"{self.path / FILE} is broken: {wrong}; nothing was added")
            entry: dict[str, Any] = {
                "format": FORMAT,
                "kind": kind,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "nonce": secrets.token_hex(16),
                "previous": sha256(present.splitlines()[-1]) if present else None,
                **content,
            }
            if signer is not None:
                signature = signer.sign(pae(PAYLOAD, canonical(entry)))
                entry["signature"] = {"keyid": signer.id, "sig": base64.b64encode(signature).decode()}
            line = canonical(entry)
            try:
                put(self.path / FILE, present + line + b"\n")
            except OSError as error:
                raise UserError(f"cannot write {self.path / FILE}: {error.strerror}; nothing was added") from error
        return Entry(json.loads(line), sha256(line))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing meanwhile."""
        try:
            file = (self.path / ".lock").open("w")
        except OSError as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}") from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def combined(asked: Sequence[Asked]) -> dict[str, Any]:
    """Return several requests as one, in the format of request.json; they must be of one kind."""
    clients: list[str] = []
    samples: dict[str, list[int]] = {}
    classes: list[int] = []
    for one in asked:
        request = one.entry["request"]
        clients += [i for i in request.get("clients", ()) if i not in clients]
        for i, rows in request.get("samples", {}).items():
            samples[i] = sorted({*samples.get(i, ()), *rows})
        classes += [c for c in request.get("classes", ()) if c not in classes]
    kinds = [name for name, what in (("clients", clients), ("samples", samples), ("classes", classes)) if what]
    if len(kinds) > 1:
        raise UserError(f"these requests name {' and '.join(kinds)}; answer requests of one kind together")
    return {"clients": clients, "samples": samples, "classes": classes}
