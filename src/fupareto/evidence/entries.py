"""Entries of a ledger of requests: what a line says, and whether the lines fit together."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence.reading import canonical
from fupareto.evidence.signing import pae

FORMAT = 1
PAYLOAD = "application/vnd.fupareto.ledger+json"
NEEDED = {  # by kind of the entry
    "opened": ("run", "federation", "weights"),
    "request": ("number", "received", "deadline", "request"),
    "withdrawal": ("number", "reason"),
    "answer": ("requests", "run", "certificate", "weights", "status", "verdict"),
    "model": ("run", "weights", "note"),
}
MODELS = ("opened", "answer", "model")  # entries that put a model in force


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
        """What the entry records: opened, request, withdrawal, answer or model."""
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
    """A request of the ledger, with its answer or its withdrawal if there is one."""

    entry: Entry
    answer: Entry | None = None
    withdrawal: Entry | None = None

    @property
    def number(self) -> int:
        """Number of the request, from 1 on."""
        return int(self.entry["number"])

    @property
    def open(self) -> bool:
        """Whether the request is still to be answered."""
        return self.answer is None and self.withdrawal is None

    @property
    def gone(self) -> list[str]:
        """Clients of the request that can no longer be reached."""
        return list(self.entry.content.get("gone", ()))

    def days_left(self, today: date) -> int:
        """Return the days until the deadline; negative when it has passed."""
        return (date.fromisoformat(self.entry["deadline"]) - today).days


def requests_of(entries: Sequence[Entry]) -> list[Asked]:
    """Return all requests, in the order in which they came."""
    answers = {number: e for e in entries if e.kind == "answer" for number in e["requests"]}
    withdrawals = {e["number"]: e for e in entries if e.kind == "withdrawal"}
    return [Asked(e, answers.get(e["number"]), withdrawals.get(e["number"])) for e in entries if e.kind == "request"]


def flaw(entries: Sequence[Entry]) -> str | None:
    """Return why entries cannot be trusted, or None: their links, numbers and order must fit."""
    before: Entry | None = None
    waiting: set[int] = set()  # requests that are neither answered nor withdrawn
    numbers = 0
    for place, entry in enumerate(entries, 1):
        held = entry.content
        kind = held.get("kind")
        if held.get("format") != FORMAT or kind not in NEEDED or any(key not in held for key in NEEDED[kind]):
            return f"entry {place} is not one of format {FORMAT}"
        if held.get("previous") != (before.sha256 if before else None):
            return f"entry {place} does not follow the one before it: a line was changed, removed or added"
        if (kind == "opened") != (place == 1):
            return f"entry {place} opens the ledger, which only the first one does"
        numbers += kind == "request"
        if kind == "request" and held["number"] != numbers:
            return f"entry {place} is request {held['number']}, not {numbers}"
        closed = _closed(held)
        if not set(closed) <= waiting:
            return f"entry {place} is about a request that does not exist, was withdrawn or was answered before"
        waiting = (waiting | ({numbers} if kind == "request" else set())) - set(closed)
        before = entry
    return None if entries else "it has no entry"


def _closed(held: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the requests that an entry closes; 0, which no request has, for what is no number."""
    numbers = {"withdrawal": [held.get("number")], "answer": held.get("requests")}.get(str(held["kind"]), [])
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        return [0]
    return numbers


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
