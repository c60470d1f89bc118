"""Ledger of erasure requests: a directory that belongs to one federation, append-only and hash-chained.

    ledger.jsonl    one entry per line: opened, request, withdrawal, answer, model (entries.py)
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from fupareto import documents
from fupareto.errors import UserError
from fupareto.evidence import asking
from fupareto.evidence.entries import FORMAT, MODELS, PAYLOAD, Asked, Entry, flaw, requests_of
from fupareto.evidence.keys import CLIENT, Signer
from fupareto.evidence.reading import canonical, read, sha256
from fupareto.evidence.signing import pae
from fupareto.files import put

FILE = "ledger.jsonl"
LONGEST = timedelta(days=3660)  # between a request and now, or its deadline; longer ones are mistyped


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
        found = []
        for place, line in enumerate(read(self.path / FILE).splitlines(), 1):
            try:
                found.append(Entry(documents.parse_object(line, once=False), sha256(line)))
            except ValueError as error:
                text = f"entry {place} is cut off or damaged ({error}); restore the file from a copy"
                raise UserError(text) from error
        return found

    @property
    def head(self) -> str:
        """SHA-256 of the newest entry, which stands for all that was written so far."""
        return self.entries[-1].sha256

    def flaw(self) -> str | None:
        """Return why the ledger cannot be trusted, or None."""
        try:
            return flaw(self.entries)
        except UserError as error:
            return str(error)

    # Reading -----------------------------------------------------------------------------------------------------

    @property
    def federation(self) -> dict[str, Any]:
        """Whose requests they are: clients, model and where the data come from."""
        return dict(self.entries[0]["federation"])

    @property
    def opened_without(self) -> dict[str, Any]:
        """Request of the run with which the ledger was opened, if that is an unlearning; otherwise empty."""
        path = self.run_of(self.entries[0]) / "request.json"
        return documents.parse_object(read(path), once=False) if path.is_file() else {}

    @property
    def requests(self) -> list[Asked]:
        """All requests, in the order in which they came."""
        return requests_of(self.entries)

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
        return next(entry for entry in reversed(self.entries) if entry.kind in MODELS)

    def run_of(self, entry: Entry) -> Path:
        """Return the path of the run, or model file, of an entry."""
        return self.path / str(entry["run"])

    def certificate_of(self, entry: Entry) -> Path:
        """Return the path of the certificate of an answer."""
        return self.run_of(entry) / "certificate.json"

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
        ledger._append("opened", lambda: {"run": ledger.relative(run), **facts}, signer)
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
        """Add a request; refuse one that could never be answered.

        Args:
            request: What is to be forgotten, in the format of request.json.
            received: Day on which it arrived.
            deadline: Day by which it must be answered.
            signer: Key of the operator.
            **more: ``reference`` (a case number), ``gone`` (clients that cannot be reached any more).
        """
        _check_dates(received, deadline)
        dates = {"received": received.isoformat(), "deadline": deadline.isoformat()}

        def content() -> dict[str, Any]:
            self.check(request)
            return {"number": len(self.requests) + 1, **dates, "request": dict(request), **more}

        return Asked(self._append("request", content, signer))

    def check(self, request: Mapping[str, Any]) -> None:
        """Refuse a request that could never be answered, as far as the ledger knows the federation."""
        asking.check(request, self.federation["clients"], self.requests, self.opened_without)

    def withdraw(self, number: int, reason: str, signer: Signer | None = None) -> Asked:
        """Append that an open request is not to be answered: its requester withdrew it, or it was entered wrongly.

        Args:
            number: Number of the request.
            reason: Why, in words.
            signer: Key of the operator.
        """
        if not reason.strip():
            raise UserError("say why the request is withdrawn: --reason 'entered twice'")

        def closed() -> dict[str, Any]:
            self._open([number])
            return {"number": number, "reason": reason.strip()}

        with self.exclusive():
            self._append("withdrawal", closed, signer)
        return self.request(number)

    def open_requests(self, numbers: Sequence[int]) -> list[Asked]:
        """Return open requests that are to be answered, by their numbers, in order.

        One that is answered or withdrawn is refused, and so is one for what was forgotten meanwhile.
        """
        asked, earlier = self._open(numbers), self.requests
        for one in asked:
            asking.check_answerable(one, earlier)
        return asked

    def _open(self, numbers: Sequence[int]) -> list[Asked]:
        asked = [self.request(number) for number in sorted(set(numbers))]
        for one in asked:
            if not one.open:
                what = "answered already" if one.answer else "withdrawn"
                raise UserError(f"request {one.number} is {what}; see: fupareto requests show {one.number}")
        return asked

    def answer(self, facts: Mapping[str, Any], signer: Signer | None = None) -> Entry:
        """Append the answer to one or more open requests."""

        def made() -> Mapping[str, Any]:
            self.open_requests(facts["requests"])
            return facts

        return self._append("answer", made, signer)

    def adopt(self, facts: Mapping[str, Any], signer: Signer | None = None) -> Entry:
        """Append that another model is in use from now on, for instance one that was trained further."""
        return self._append("model", lambda: facts, signer)

    def check_signer(self, signer: Signer | None) -> None:
        """Refuse an entry without a signature in a ledger that is signed, and one that a client's key signs.

        Nothing can be taken back, so such an entry would fail every later verification.
        """
        if signer is not None and signer.name.startswith(CLIENT):
            raise UserError(f"the key {signer.name} is that of a client; a ledger is signed by an operator's key")
        if signer is None and (self.path / FILE).is_file() and self.entries[0].content.get("signature"):
            raise UserError(f"the entries of {self.path} are signed; name the key with --key, or in FUPARETO_KEY")

    def _append(self, kind: str, content: Callable[[], Mapping[str, Any]], signer: Signer | None) -> Entry:
        """Append an entry; its content is made while nobody else writes."""
        with self._locked(".lock"):
            present = read(self.path / FILE) if (self.path / FILE).is_file() else b""
            if present and (wrong := self.flaw()):
                raise UserError(f"{self.path / FILE} is broken: {wrong}; nothing was added")
            self.check_signer(signer)
            entry: dict[str, Any] = {
                "format": FORMAT,
                "kind": kind,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "nonce": secrets.token_hex(16),
                "previous": sha256(present.splitlines()[-1]) if present else None,
                **content(),
            }
            if signer is not None:
                signature = signer.sign(pae(PAYLOAD, canonical(entry)))
                entry["signature"] = {"keyid": signer.id, "sig": base64.b64encode(signature).decode()}
            line = canonical(entry)
            try:
                put(self.path / FILE, b"".join(one + b"\n" for one in (*present.splitlines(), line)))
            except OSError as error:
                raise UserError(f"cannot write {self.path / FILE}: {error.strerror}; nothing was added") from error
        return Entry(json.loads(line), sha256(line))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Refuse to begin while another process answers, withdraws or adopts: each depends on the model in force."""
        with self._locked(".answering", wait=False):
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, wait: bool = True) -> Iterator[None]:
        """Keep other processes out meanwhile; they wait, or are refused."""
        try:
            file = (self.path / name).open("w")
        except OSError as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise UserError(f"another process is changing {self.path}; try again when it has ended") from error
            yield


def _check_dates(received: date, deadline: date) -> None:
    """Refuse dates that are mistyped: an entry could only be withdrawn, not taken back."""
    today = datetime.now(UTC).date()
    if today - received > LONGEST or deadline - received > LONGEST:
        raise UserError(f"received on {received}, due on {deadline}: more than ten years; check the dates")
    if received > today + timedelta(days=1):
        raise UserError(f"the request cannot have been received on {received}, which is in the future")
    if deadline < received:
        raise UserError(f"the deadline {deadline} is before the day on which the request was received, {received}")
