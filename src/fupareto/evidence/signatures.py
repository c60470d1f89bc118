"""Findings on signatures: who stands for a certificate, and what the leaving clients say themselves."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fupareto.evidence import reading, signing, timestamps
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding, word
from fupareto.evidence.keys import CLIENT, Trusted

TOLERANCE = 0.005  # by which a client's own number may differ from the certified one


def signatures(certificate: Mapping[str, Any], data: bytes, path: Path, trusted: Trusted | None) -> Iterator[Finding]:
    """Check the envelopes beside a certificate against the keys that are trusted."""
    raw = signing.envelopes(path)
    if trusted is None:
        text = f"{len(raw)} signatures, but no key to check them with (--trusted)" if raw else "It is not signed"
        yield Finding(NOT_CHECKED, "signature", f"Who wrote the certificate: {text}.")
        return
    where = str(signing.bundle_of(path))
    opened = [signing.opened(one, trusted, where) for one in raw]
    own = [one for one in opened if one.statement.get("predicateType") == signing.CERTIFICATE]
    expected = reading.canonical(signing.statement_of(certificate, data))
    about_this = [one for one in own if one.payload == expected]
    by = dict.fromkeys(name for one in about_this for name in one.operators)
    if by:
        yield Finding(OK, "signature", f"Signed by {', '.join(map(word, by))}.")
    elif any(one.operators for one in own):
        text = f"{where} is signed, but for another certificate, or this one was changed after it was signed."
        yield Finding(FAILED, "signature", text)
    elif own:
        yield Finding(FAILED, "signature", f"{where} is signed by no key that is trusted, or its signature is forged.")
    else:
        yield Finding(FAILED, "signature", f"The certificate is not signed: {where} has no statement about it.")
    yield from _receipts(certificate, path, trusted)


def _receipts(certificate: Mapping[str, Any], path: Path, trusted: Trusted) -> Iterator[Finding]:
    """Compare what leaving clients measured themselves with what is certified."""
    found: dict[str, Any] = {}
    for one in signing.own_receipts(path, trusted):
        found[str(one.statement["predicate"]["client"])] = one.statement["predicate"]
    for client, said in found.items():
        yield _receipt(certificate, reading.hash_file(path), client, said)
    everyone = [signing.opened(one, trusted, str(path)).statement for one in signing.envelopes(path)]
    receipts = {str(one["predicate"].get("client")) for one in everyone if one.get("predicateType") == signing.RECEIPT}
    if strange := sorted(receipts - found.keys()):
        who = ", ".join(map(word, strange))
        text = f"Receipts of {who} are not signed by a trusted key of that client ({CLIENT}ID.pub)."
        yield Finding(FAILED, "receipts", text)


def _receipt(certificate: Mapping[str, Any], nonce: str, client: str, said: Mapping[str, Any]) -> Finding:
    about, summary = f"receipt.{word(client)}", certificate["summary"]
    if said.get("nonce") != nonce:
        return Finding(FAILED, about, f"The receipt of client {word(client)} is for another certificate.")
    if said.get("weights") != certificate["kept"]["weights"]:
        return Finding(FAILED, about, f"Client {word(client)} measured another model than the one to keep.")
    held = summary.get("data")
    digest = held.get(client) if isinstance(held, dict) else None
    if digest != said.get("data"):
        text = f"Client {word(client)} has other data than those that are certified: other rows, or other labels."
        return Finding(FAILED, about, text)
    stage = summary["stages"].get(certificate["kept"]["stage"], {})
    clients = stage.get("clients")
    certified = clients.get(client, {}) if isinstance(clients, dict) else {}
    for key in ("asr", "accuracy"):
        one, other = said.get(key), certified.get(key)
        if one is not None and other is not None and abs(one - other) > TOLERANCE:
            return Finding(FAILED, about, f"Client {word(client)} measured {key} {one:.3f}; {other:.3f} is certified.")
    return Finding(OK, about, f"Client {word(client)} measured the model on its own data, and signed the same numbers.")


def stamped(path: Path, authorities: Path | None) -> Iterator[Finding]:
    """Check the RFC 3161 timestamp beside a certificate, if there is one."""
    stamp = timestamps.stamp_of(path)
    if not stamp.exists():
        return
    if authorities is None:
        text = f"{stamp.name} is there, but no authority to check it with (--authority)."
        yield Finding(NOT_CHECKED, "timestamp", text)
        return
    yield timestamps.check(path, authorities)
