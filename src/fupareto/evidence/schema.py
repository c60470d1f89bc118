"""Schema of certificates: what one holds, and the check that a file has this shape.

    format, about, created
    status, verdict        the result in words, with the tally of the audit's checks
    request                request.json: what was to be forgotten, and when that was asked
    federation             whose request: client ids, the model's name, where the clients' data come from
    start, kept            the model before and the one to keep: file, SHA-256 of file, weights, layout and tensors
    position, previous     the place in the chain from 1 on, and the certificate before it, or null: SHA-256, where it
                           was, whether this run started from the model that was kept there, and which clients were
                           forgotten so far
    requests               entries of the ledger that are answered: number, SHA-256, when received, by when to answer
    earlier                earlier.json: what earlier requests forgot, measured on the model to keep; or null
    code                   version and SHA-256 of the source of fupareto that wrote the certificate
    references             retrained and shadow models that the audit compared with: SHA-256 of their files
    files                  SHA-256 of every file of the run that its verdict rests on
    summary, audit, config whole copies of summary.json, audit.json (or null) and config.toml
    parts                  SHA-256 of each part above
    digest                 SHA-256 of everything else

The SHA-256 of a part, and the digest, are those of its canonical JSON: sorted keys, no spaces, UTF-8.
"""

import json
import reprlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fupareto.errors import UserError
from fupareto.evidence.findings import word
from fupareto.evidence.reading import parse, read, sha256
from fupareto.tally import tally_of, with_tally

FORMAT = 2
ABOUT = (
    "A record of one unlearning request: the models before and after, what was measured, and the files it rests on. "
    "Check it with: fupareto verify. Its signatures say who stands for it. It does not show that any data were deleted."
)  # part of the format, as is UNVERIFIED: other words are another format
UNVERIFIED = "NOT VERIFIED: a client that is to be forgotten could not be measured, so nothing is claimed. "
DOCUMENTS = {
    "request": "request.json",
    "summary": "summary.json",
    "audit": "audit.json",
    "earlier": "earlier.json",
    "config": "config.toml",
}
OPTIONAL = ("audit", "earlier")  # documents that a run may lack
VIRTUAL = "/forget"  # of a client's part that is to be forgotten, as federation.request names it; that imports torch

Name = Literal[
    "request.json", "summary.json", "audit.json", "earlier.json", "config.toml", "rounds.jsonl",
    "initial.safetensors", "unlearned.safetensors", "recovered.safetensors", "retrained.safetensors",
]  # fmt: skip
FILES: tuple[Name, ...] = get_args(Name)
Stage = Literal["initial", "unlearned", "recovered"]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def beside(hint: str) -> str:
    """Accept ``file`` or ``directory/file`` in plain names: a certificate must not send its reader across the disk."""
    parts = hint.split("/")
    plain = (p == PurePosixPath(p).name == PureWindowsPath(p).name and p not in ("", ".", "..") for p in parts)
    if len(parts) > 2 or not hint.isprintable() or not all(plain):
        raise ValueError("must be a file name, or a directory's and a file's")
    return hint


class _Copy(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Request(_Copy):
    clients: list[str]


class _Summary(_Copy):
    clients: list[str]
    forget: list[str]
    stages: dict[str, dict[str, Any]]
    final: Stage
    status: Literal["complete", "unverified"]
    verdict: str


class _Federation(_Part):
    clients: list[str]
    model: str | None
    data: dict[str, Any] | None


class _Model(_Part):
    stage: Stage
    file: Name
    sha256: Sha
    weights: Sha
    layout: Sha
    tensors: dict[str, Sha]


class _Previous(_Part):
    sha256: Sha
    hint: Annotated[str, AfterValidator(beside)] | None
    start: Literal["kept", "same", "other"]
    forgotten: list[str]


class _Entry(_Part):
    number: Annotated[int, Field(ge=1)]
    sha256: Sha
    received: str
    deadline: str


class _Code(_Part):
    version: str
    sha256: Sha


class _Reference(_Part):
    place: Literal["retrained", "retrained-2", "shadows"]
    weights: Sha | None
    files: dict[str, Sha]


class _Certificate(_Part):
    format: Literal[2]
    about: str
    created: str
    status: Literal["complete", "unverified"]
    verdict: str
    request: _Request
    federation: _Federation
    start: _Model
    kept: _Model
    position: Annotated[int, Field(ge=1)]
    previous: _Previous | None
    requests: list[_Entry]
    code: _Code
    references: list[_Reference]
    files: dict[Name, Sha]
    summary: _Summary
    audit: dict[str, Any] | None
    earlier: dict[str, Any] | None
    config: dict[str, Any]
    parts: dict[str, Sha]
    digest: Sha


ORDER = tuple(_Certificate.model_fields)


def check(value: dict[str, Any], whose: str) -> dict[str, Any]:
    """Return a certificate's content if it has the right shape; else name what is wrong with it."""
    found = value.get("format", FORMAT)
    if type(found) is not int or found != FORMAT:
        raise UserError(
            f"{whose} is a certificate of format {reprlib.repr(found)}; this version reads format {FORMAT}. "
            "Use the version of fupareto that wrote it"
        )
    try:
        _Certificate.model_validate(value)
    except ValidationError as error:
        raise UserError(f"{whose} is not a whole certificate: {_explain(error)}") from error
    return value


def check_copies(request: dict[str, Any], summary: dict[str, Any], where: Path) -> None:
    """Refuse a run whose request or summary lacks what a certificate needs."""
    for name, shape, value in (("request.json", _Request, request), ("summary.json", _Summary, summary)):
        try:
            shape.model_validate(value)
        except ValidationError as error:
            raise UserError(
                f"{where / name} cannot be certified: {_explain(error)}. Measure the run again: fupareto audit {where}"
            ) from error


def _explain(error: ValidationError) -> str:
    mistakes = {".".join(word(str(key)) for key in e["loc"]): e["msg"] for e in error.errors()}
    return "; ".join(f"{place}: {text}" for place, text in [*mistakes.items()][:3])


def verdict(summary: dict[str, Any], audit: dict[str, Any] | None) -> str:
    """Return the certificate's verdict: the summary's with the tally of checks, after NOT VERIFIED where that holds."""
    return prefix(summary) + with_tally(str(summary["verdict"]), tally_of(summary, audit))


def prefix(summary: dict[str, Any]) -> str:
    """Return what a verdict begins with."""
    return "" if summary["status"] == "complete" else UNVERIFIED


NAMED = {
    "clients": "clients",
    "samples": "samples",
    "classes": "classes",
    "left": "forgotten before: clients",
    "left_samples": "samples",
    "left_classes": "classes",
}


def describe(certificate: dict[str, Any]) -> str:
    """Say in a few lines what a certificate is about."""
    asked = {key: value for key, value in certificate["request"].items() if value and key in NAMED}
    kept = certificate["kept"]
    lines = (
        "To be forgotten: " + "; ".join(f"{NAMED[key]} {_named(value)}" for key, value in asked.items()),
        f"Requested: {_requested(certificate)}; certified: {certificate['created']}",
        f"Certificate {certificate['position']} of its chain; method {_method(certificate)}",
        f"Model to keep: {kept['file']}, SHA-256 {kept['sha256']}",
        *_identified(certificate["summary"].get("membership")),
        f"Thresholds: {_thresholds(certificate)}",
        with_tally(certificate["verdict"], tally_of(certificate["summary"], certificate["audit"])),
    )
    return "\n".join(map(word, lines))


def _named(value: Any) -> str:
    """Say which clients, rows by client, or classes a request names."""
    if isinstance(value, dict):
        return ", ".join(f"{reprlib.repr(rows)[1:-1]} of client {i}" for i, rows in list(value.items())[:6])
    return ", ".join(map(str, value[:20])) + (", …" if len(value) > 20 else "") if isinstance(value, list) else "?"


def _identified(membership: Any) -> list[str]:
    """Say how a run over a network knew its clients; nothing of other runs."""
    if membership is None:
        return []
    bound = isinstance(membership, dict) and membership.get("sha256")
    return [f"Clients' names: {f'bound to keys, membership file {bound}' if bound else str(membership)[:200]}"]


def _requested(certificate: dict[str, Any]) -> str:
    """Say when the request arrived: as the ledger has it, or else when it was begun to be answered."""
    entries = [f"{entry['received']} (request {entry['number']})" for entry in certificate["requests"]]
    return ", ".join(entries) or str(certificate["request"].get("received"))


def _method(certificate: dict[str, Any]) -> str:
    method = certificate["config"].get("method")
    options = dict(method) if isinstance(method, dict) else {}
    name = options.pop("name", certificate["summary"].get("method"))
    return f"{name} ({', '.join(f'{key}={value}' for key, value in options.items()) or 'no options'})"


def _thresholds(certificate: dict[str, Any]) -> str:
    limits = (certificate["audit"] or {}).get("thresholds")
    return ", ".join(f"{key} {value}" for key, value in limits.items()) if isinstance(limits, dict) else "none"


def federation(summary: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return whose request it was: the clients, without those that stand for a part of one, the model and the data.

    A run made from Python does not say where its clients' data come from.
    """
    experiment = config.get("experiment")
    settings = (
        {key: experiment.get(key) for key in ("seed", "data", "partition")} if isinstance(experiment, dict) else None
    )
    clients = dict.fromkeys(i.removesuffix(VIRTUAL) for i in summary["clients"])
    return {"clients": [*clients], "model": summary.get("model"), "data": settings}


def load(path: Path) -> dict[str, Any]:
    """Read a certificate."""
    return read_certificate(path)[0]


def read_certificate(path: Path) -> tuple[dict[str, Any], bytes]:
    """Read a certificate, and its bytes."""
    data = read(path)
    return check(parse(path, data), str(path)), data


def render(certificate: dict[str, Any]) -> bytes:
    """Return the bytes of the file, for people to read."""
    return json.dumps(certificate, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def seal(content: dict[str, Any]) -> dict[str, Any]:
    """Add the SHA-256 of each part and the digest of everything."""
    whole = {**content, "parts": {key: sha256(value) for key, value in content.items()}}
    return {**whole, "digest": sha256(whole)}
