"""Findings on the place of a certificate in the ledger, and on the model that is deployed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence import models, schema
from fupareto.evidence.entries import MODELS, Entry, combined
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding
from fupareto.evidence.keys import CLIENT, Trusted
from fupareto.evidence.ledger import FILE, Ledger
from fupareto.evidence.reading import sha256

NO_LEDGER = Finding(
    NOT_CHECKED,
    "position",
    "That no later certificate exists, that none else follows the same one, and that the chain was not begun anew: "
    "compare with the ledger of requests (--ledger).",
)


def position(
    certificate: Mapping[str, Any], data: bytes, where: Path | None, head: str | None, trusted: Trusted | None
) -> Iterator[Finding]:
    """Compare a certificate with the ledger: its place in the chain, and the requests that it answers."""
    if where is None:
        yield NO_LEDGER
        return
    ledger = Ledger(where)
    if not (where / FILE).is_file():
        raise UserError(f"{where} has no ledger; name the directory that holds {FILE}")
    if wrong := ledger.flaw():
        yield Finding(FAILED, "ledger", f"{where / FILE} is broken: {wrong}.")
        return
    yield from _whole(ledger, head)
    yield from _withdrawn(ledger)
    if trusted is not None:
        yield from _signed(ledger, trusted)
    answers = ledger.answers
    digests = [answer["certificate"] for answer in answers]
    if sha256(data) not in digests:
        text = (
            f"The certificate is not in the ledger {where}: it is a fork, the beginning of another chain, or changed."
        )
        yield Finding(FAILED, "position", text)
        return
    place = digests.index(sha256(data))
    before = digests[place - 1] if place else None
    if digests.count(sha256(data)) > 1:
        yield Finding(FAILED, "position", "The ledger has the same certificate as the answer to several requests.")
    if certificate["position"] != place + 1 or (certificate["previous"] or {}).get("sha256") != before:
        text = f"It is answer {place + 1} of the ledger, but the certificate follows another one: a fork."
        yield Finding(FAILED, "position", text)
    else:
        newest = "the newest" if place + 1 == len(answers) else f"superseded by {_words(answers[-1]['requests'])}"
        yield Finding(OK, "position", f"It is answer {place + 1} of {len(answers)} in the ledger, {newest}.")
    yield from _requests(certificate, ledger, answers[place])


def _whole(ledger: Ledger, head: str | None) -> Iterator[Finding]:
    if head is None:
        text = (
            f"That nothing was cut off the ledger: it ends with {ledger.head}. Compare with the head that you were "
            "given last (--head)."
        )
        yield Finding(NOT_CHECKED, "head", text)
    elif any(entry.sha256 == head for entry in ledger.entries):
        yield Finding(OK, "head", f"The ledger holds the entry {head}, and every one before it.")
    else:
        text = f"The ledger does not hold the entry {head}: entries were withheld, or it was written anew."
        yield Finding(FAILED, "head", text)


def _withdrawn(ledger: Ledger) -> Iterator[Finding]:
    """Name the requests that will not be answered; whether whoever asked agrees, no file can say."""
    for one in ledger.requests:
        if one.withdrawal is not None:
            text = f"Request {one.number} was withdrawn on {one.withdrawal['at'][:10]}: {one.withdrawal['reason']}"
            yield Finding(OK, "withdrawn", text if text.endswith(".") else f"{text}.")


def _signed(ledger: Ledger, trusted: Trusted) -> Iterator[Finding]:
    for place, entry in enumerate(ledger.entries, 1):
        data, signature = entry.signed()
        name = None if signature is None else trusted.signer(data, signature)
        if name is None or name.startswith(CLIENT):
            yield Finding(FAILED, "ledger", f"Entry {place} of the ledger is not signed by a trusted operator.")
            return
    yield Finding(OK, "ledger", f"All {place} entries of the ledger are signed by a trusted operator.")


def _requests(certificate: Mapping[str, Any], ledger: Ledger, answer: Entry) -> Iterator[Finding]:
    """Compare what was answered with what was asked."""
    asked = [ledger.request(number) for number in answer["requests"]]
    wanted = [{"number": one.number, "sha256": one.entry.sha256, **_dates(one.entry)} for one in asked]
    if certificate["requests"] != wanted:
        text = f"The certificate is not about {_words(answer['requests'])} of the ledger, which it is said to answer."
        yield Finding(FAILED, "requests", text)
        return
    request, held = combined(asked), certificate["request"]
    same = [
        set(held.get("clients", ())) == set(request["clients"]),
        {i: set(rows) for i, rows in held.get("samples", {}).items()}
        == {i: set(rows) for i, rows in request["samples"].items()},
        set(held.get("classes", ())) == set(request["classes"]),
    ]
    if all(same):
        yield Finding(OK, "requests", f"It answers {_words(answer['requests'])}, and all that was asked for there.")
    else:
        text = f"What was forgotten is not what {_words(answer['requests'])} asked for: other clients, rows or classes."
        yield Finding(FAILED, "requests", text)


def _dates(entry: Entry) -> dict[str, str]:
    return {"received": entry["received"], "deadline": entry["deadline"]}


def deployed(path: Path, certificate: Mapping[str, Any], where: Path | None) -> Finding:
    """Say which model a file is: the one in force, one that was superseded, or an unknown one.

    Args:
        path: The model file.
        certificate: A certificate.
        where: Directory of the ledger; None compares with the certificate alone.
    """
    found = models.digests(path)
    if where is None:
        if models.same_weights(found["tensors"], certificate["kept"]["tensors"]):
            return Finding(OK, "model", f"{path} is the model that the certificate says to keep.")
        if models.same_weights(found["tensors"], certificate["start"]["tensors"]):
            return Finding(FAILED, "model", f"{path} is the model from before the request: it has forgotten nothing.")
        return Finding(FAILED, "model", f"{path} is unknown: the certificate names neither its weights nor a part.")
    ledger = Ledger.open(where)
    held = [(entry, _tensors(ledger, entry)) for entry in ledger.entries if entry.kind in MODELS]
    last = ledger.in_force
    for entry, tensors in reversed(held):
        if entry["weights"] != found["weights"] and not models.same_weights(found["tensors"], tensors):
            continue
        what = _origin(entry)
        if entry.sha256 == last.sha256:
            return Finding(OK, "model", f"{path} is {what}, and in force.")
        return Finding(FAILED, "model", f"{path} is {what}; it was superseded by {_origin(last)}.")
    return Finding(FAILED, "model", f"{path} is unknown: no entry of the ledger names its weights.")


def _origin(entry: Entry) -> str:
    if entry.kind == "answer":
        return f"the model that answered {_words(entry['requests'])}"
    return f"the model adopted on {entry['at'][:10]}" if entry.kind == "model" else "the model from before any request"


def _tensors(ledger: Ledger, entry: Entry) -> Mapping[str, str]:
    """Return the digests of the tensors of an answer's model, from its certificate; none where that is missing."""
    path = ledger.certificate_of(entry)
    if entry.kind != "answer" or not path.is_file():
        return {}
    certificate, data = schema.read_certificate(path)
    return certificate["kept"]["tensors"] if sha256(data) == entry["certificate"] else {}


def _words(numbers: list[int]) -> str:
    *most, last = map(str, numbers)
    return f"requests {', '.join(most)} and {last}" if most else f"request {last}"
