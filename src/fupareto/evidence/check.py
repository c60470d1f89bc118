"""Verification of a certificate: whatever was changed since it was written is named, and whatever was not checked."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence import ledgers, models, purges, reading, references, schema
from fupareto.evidence.chain import chain
from fupareto.evidence.consistency import rounds_of, within
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding, pairs
from fupareto.evidence.keys import Trusted
from fupareto.evidence.remeasure import TOLERANCE, compare
from fupareto.evidence.signatures import signatures, stamped

Again = tuple[Mapping[str, Any], Mapping[str, Any] | None]  # a summary and an audit that were made again
SMALLER_IS_LAXER = ("relearning",)  # thresholds that are a least, not a most

NOT_MEASURED = Finding(
    NOT_CHECKED, "numbers", "The numbers were not measured again: that takes the clients' data (--audit)."
)
NOT_REPLAYED = Finding(
    NOT_CHECKED, "method", "That this method made these rounds: no round was computed again (--replay)."
)


@dataclass(frozen=True)
class Against:
    """What a verifier has besides the files of the run.

    Attributes:
        trusted: Public keys of those whose signatures count.
        ledger: Directory of the ledger of requests.
        head: SHA-256 of an entry of the ledger that the verifier was given earlier.
        limits: Thresholds that the verifier accepts.
        chosen: Names of the limits that the verifier chose, so that a laxer one fails.
        authorities: PEM file of the timestamp authorities that are trusted.
        replayed: What the replay of rounds found; None without one.
    """

    trusted: Trusted | None = None
    ledger: Path | None = None
    head: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    chosen: Sequence[str] = ()
    authorities: Path | None = None
    replayed: Sequence[Finding] | None = None


def verify(
    path: Path,
    run: Path | None = None,
    previous: Sequence[Path] = (),
    again: Again | None = None,
    tolerance: float = TOLERANCE,
    against: Against | None = None,
) -> list[Finding]:
    """Check a certificate, the files of its run and the certificates before it; nothing is written.

    Args:
        path: The certificate.
        run: Directory of its run; by default its own directory.
        previous: Earlier certificates of its chain that lie elsewhere than beside it.
        again: What an audit says now, to be compared with what is certified.
        tolerance: Allowed difference of fractions.
        against: Keys, a ledger and what else the verifier has.
    """
    certificate, data = schema.read_certificate(path)
    where, against = run or path.parent, against or Against()
    try:
        if not where.is_dir():
            raise UserError(f"there is no run directory {where}")
        return [
            *within(certificate, data, str(path)),
            *_files(certificate, where),
            *_copies(certificate, where),
            *_rounds(certificate, where),
            *references.kept(certificate, where),
            *references.check(certificate, where),
            *chain(certificate, path, previous),
            *ledgers.position(certificate, data, against.ledger, against.head, against.trusted),
            *_thresholds(certificate, against),
            *_earlier(certificate),
            *purges.findings(where),
            *(compare(certificate, *again, tolerance) if again else [NOT_MEASURED]),
            *([NOT_REPLAYED] if against.replayed is None else against.replayed),
            *signatures(certificate, data, path, against.trusted),
            *stamped(path, against.authorities),
        ]
    except OSError as error:  # a directory that may not be looked into
        raise UserError(f"cannot read {error.filename or where}: {error.strerror}") from error


def _files(certificate: dict[str, Any], where: Path) -> Iterator[Finding]:
    for name, expected in certificate["files"].items():
        path = where / name
        if not path.is_file():
            yield Finding(NOT_CHECKED, name, f"{name} is not in {where}, so it was not compared.")
        elif reading.hash_file(path) == expected:
            yield Finding(OK, name, f"{name} is the file that was certified.")
        else:
            yield Finding(FAILED, name, f"{path} was changed: it does not have the SHA-256 that is certified.")
    for name in schema.FILES:
        if name not in certificate["files"] and (where / name).exists():
            yield Finding(NOT_CHECKED, name, f"{where / name} is not part of the certificate: it says nothing of it.")


def _copies(certificate: dict[str, Any], where: Path) -> Iterator[Finding]:
    """Compare what the certificate copies from files, and says of models, with the files that are there."""
    sources: dict[str, tuple[str, Callable[[], Any]]] = {
        part: (name, partial(reading.document, where / name)) for part, name in schema.DOCUMENTS.items()
    }
    for part in ("start", "kept"):
        stage = certificate[part]["stage"]
        sources[part] = (f"{stage}.safetensors", partial(models.identity, where, stage))
    same = []
    for part, (name, reader) in sources.items():
        if certificate[part] is None or not (where / name).is_file():
            continue
        try:
            found = reader()
        except UserError as error:
            yield Finding(FAILED, part, f"'{part}' cannot be compared with its file: {error}.")
            continue
        if reading.canonical(found) == reading.canonical(certificate[part]):
            same.append(part)
            continue
        places = [at for at, one, other in pairs(certificate[part], found, part) if one != other]
        yield Finding(FAILED, part, f"'{part}' is not what {where / name} says; see {', '.join(places[:5]) or part}.")
    if same:
        yield Finding(OK, "copies", f"What the certificate says of {', '.join(same)} is what the files say.")


def _rounds(certificate: dict[str, Any], where: Path) -> Iterator[Finding]:
    path = where / "rounds.jsonl"
    if not path.is_file():
        return
    try:
        lines = [json.loads(line) for line in reading.read(path).splitlines()]
        if not all(isinstance(line, dict) for line in lines):
            raise ValueError("a line is no object")
    except (ValueError, RecursionError, UserError) as error:
        yield Finding(FAILED, "rounds", f"{path} is damaged: {error}.")
        return
    yield from rounds_of(certificate, lines)


def _thresholds(certificate: dict[str, Any], against: Against) -> Iterator[Finding]:
    """Name the thresholds that are laxer than those that the verifier accepts."""
    audit = certificate["audit"]
    held = audit.get("thresholds") if audit else None
    if not isinstance(held, dict) or not against.limits:
        return
    lax = []
    for key, accepted in against.limits.items():
        value = held.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if (value < accepted) if key in SMALLER_IS_LAXER else (value > accepted):
            lax.append(f"{key} {value:g} instead of {accepted:g}")
    if not lax:
        yield Finding(OK, "thresholds", "The thresholds are at least as strict as those that are accepted.")
        return
    level = FAILED if any(one.split()[0] in against.chosen for one in lax) else NOT_CHECKED
    text = f"The audit's thresholds are laxer than those that are accepted (--threshold): {', '.join(lax)}."
    yield Finding(level, "thresholds", text)


def _earlier(certificate: dict[str, Any]) -> Iterator[Finding]:
    """Say whether what earlier requests forgot is still forgotten, where that was measured."""
    for number, found in (certificate["earlier"] or {}).items():
        if not isinstance(found, dict) or found.get("result") != "held":
            text = str(found.get("text", "")) if isinstance(found, dict) else ""
            yield Finding(NOT_CHECKED, "earlier", f"Request {number}, forgotten earlier: {text or 'not measured'}")
