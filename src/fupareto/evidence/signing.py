"""Signatures: DSSE envelopes around in-toto statements, in a file of one envelope per line beside the certificate.

A statement's *subjects* are the digests of models; its *predicate* names the certificate, or carries a receipt: what
the leaving client measured on its own data. A signature covers the type and the bytes of the statement (DSSE v1, PAE).

    certificate.json            what is signed
    certificate.intoto.jsonl    the operator's envelope, clients' receipts
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence.keys import CLIENT, Signer, Trusted, key_name
from fupareto.evidence.reading import canonical, read, sha256
from fupareto.files import put

PAYLOAD = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
CERTIFICATE = "urn:fupareto:certificate:v2"
RECEIPT = "urn:fupareto:receipt:v1"
SUFFIX = ".intoto.jsonl"
VIRTUAL = "/forget"  # of a client's part that is to be forgotten, which its owner signs for


def pae(kind: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding of DSSE, which is what a signature covers."""
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def envelope(statement: Mapping[str, Any], signer: Signer) -> dict[str, Any]:
    """Return a signed statement."""
    payload = canonical(statement)
    signature = signer.sign(pae(PAYLOAD, payload))
    signed = {"keyid": signer.id, "sig": base64.b64encode(signature).decode()}
    return {"payloadType": PAYLOAD, "payload": base64.b64encode(payload).decode(), "signatures": [signed]}


@dataclass(frozen=True)
class Signed:
    """A statement, its bytes and the names of the trusted keys that signed it."""

    statement: dict[str, Any]
    payload: bytes
    by: tuple[str, ...]
    strangers: int  # signatures of keys that are not trusted, or that do not match

    @property
    def operators(self) -> list[str]:
        """Names of the signers that are no clients."""
        return [name for name in self.by if not name.startswith(CLIENT)]


def opened(raw: Any, trusted: Trusted, where: str) -> Signed:
    """Return the statement of an envelope, with those who signed it."""
    try:
        if raw["payloadType"] != PAYLOAD:
            raise ValueError(f"its payload is {raw['payloadType']!r}, not {PAYLOAD}")
        payload = base64.b64decode(raw["payload"], validate=True)
        names = [trusted.signer(pae(PAYLOAD, payload), base64.b64decode(s["sig"])) for s in raw["signatures"]]
        statement = json.loads(payload)
        if not isinstance(statement, dict) or not isinstance(statement.get("predicate"), dict):
            raise ValueError("it holds no statement")
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
        raise UserError(f"{where} has an envelope that cannot be read: {error}") from error
    by = tuple(dict.fromkeys(name for name in names if name is not None))
    return Signed(statement, payload, by, names.count(None))


def bundle_of(certificate: Path) -> Path:
    """Return the path of the signatures of a certificate."""
    return certificate.with_name(certificate.stem + SUFFIX)


def envelopes(certificate: Path) -> list[Any]:
    """Return the envelopes beside a certificate; none if there is no such file."""
    path = bundle_of(certificate)
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in read(path).splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error


def add(certificate: Path, more: Iterable[Mapping[str, Any]]) -> Path:
    """Add envelopes to those beside a certificate; one that is there already is not added again."""
    path = bundle_of(certificate)
    lines = [canonical(one) for one in envelopes(certificate)]
    lines += [line for line in map(canonical, more) if line not in lines]
    try:
        put(path, b"".join(line + b"\n" for line in lines))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return path


def statement_of(certificate: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return the statement that stands for a certificate: its models, its digest, its place, its request and verdict.

    Args:
        certificate: The certificate.
        data: The bytes of its file.
    """
    models = {certificate[part]["file"]: certificate[part]["sha256"] for part in ("start", "kept")}
    predicate = {
        "certificate": {"sha256": sha256(data), "digest": certificate["digest"]},
        "created": certificate["created"],
        "position": certificate["position"],
        "previous": (certificate["previous"] or {}).get("sha256"),
        "request": certificate["request"],
        "requests": certificate["requests"],
        "verdict": certificate["verdict"],
        "weights": certificate["kept"]["weights"],
    }
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in models.items()],
        "predicateType": CERTIFICATE,
        "predicate": predicate,
    }


def receipt(client: str, nonce: str, weights: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement in which a client says what it measured.

    Args:
        client: The client.
        nonce: Number that was drawn for this question, so that an old receipt cannot stand for a new one.
        weights: Digest of the weights of the model that it measured.
        measured: What it measured, and the digest of its data.
    """
    return {
        "_type": STATEMENT,
        "subject": [{"name": "weights", "digest": {"sha256": weights}}],
        "predicateType": RECEIPT,
        "predicate": {"client": client, "nonce": nonce, "weights": weights, **measured},
    }


def own_receipts(certificate: Path, trusted: Trusted) -> list[Signed]:
    """Return the receipts beside a certificate that the client they name has signed."""
    found = [opened(raw, trusted, str(bundle_of(certificate))) for raw in envelopes(certificate)]
    return [
        one
        for one in found
        if one.statement.get("predicateType") == RECEIPT
        and key_name(str(one.statement["predicate"].get("client")).removesuffix(VIRTUAL)) in one.by
    ]
