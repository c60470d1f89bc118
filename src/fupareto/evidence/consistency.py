"""Consistency of a certificate with itself: digests, bytes, dates, and that no part contradicts another."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fupareto.evidence import reading, schema
from fupareto.evidence.findings import FAILED, OK, Finding
from fupareto.tally import tally_of

SKEW = timedelta(minutes=10)  # by which the clocks of two machines may differ


def within(certificate: dict[str, Any], data: bytes, whose: str) -> list[Finding]:
    """Check a certificate by itself: its digests, its bytes, its dates, and that no part contradicts another."""
    parts = certificate["parts"]
    content = {key: value for key, value in certificate.items() if key not in ("parts", "digest")}
    found = [
        Finding(FAILED, key, f"'{key}' of {whose}, or its SHA-256 in 'parts', was changed: they do not fit.")
        for key, value in content.items()
        if parts.get(key) != reading.sha256(value)
    ]
    for key in parts:
        if key not in content:
            found.append(Finding(FAILED, "parts", f"'parts' of {whose} was changed: it has {key!r}, which is no part."))
    if not found and reading.sha256({**content, "parts": parts}) != certificate["digest"]:
        text = f"'digest' of {whose} does not fit: it was changed, or a part together with its SHA-256 in 'parts'."
        found.append(Finding(FAILED, "digest", text))
    if schema.render(certificate) != data:
        text = f"{whose} is not written as certificates are: other spaces or signs, or a key that is there twice."
        found.append(Finding(FAILED, "certificate", text))
    for part in _contradictions(certificate):
        found.append(Finding(FAILED, part, f"'{part}' of {whose} contradicts the rest of the certificate."))
    found += [Finding(FAILED, "dates", f"The dates of {whose} are impossible: {text}.") for text in _dates(certificate)]
    whole = f"{whose} is as it was written: its digest and those of its parts fit, and no part contradicts another."
    return found or [Finding(OK, "certificate", whole)]


def _contradictions(certificate: dict[str, Any]) -> list[str]:
    summary, files, asked = certificate["summary"], certificate["files"], certificate["request"]

    def is_stage(part: str, stage: str) -> bool:
        model, name = certificate[part], f"{stage}.safetensors"
        own = model["stage"] == stage and model["file"] == name and model["sha256"] == files.get(name)
        return bool(own and model["weights"] == reading.sha256(model["tensors"]))

    words = certificate["verdict"], schema.verdict(summary, certificate["audit"])
    counted = tally_of({}, certificate["audit"])
    needed = {"request.json", "summary.json", "config.toml", *(f"{s}.safetensors" for s in summary["stages"])}
    needed |= {"rounds.jsonl"} if _rounds(summary) else set()
    agree = {
        "about": certificate["about"] == schema.ABOUT,
        "status": certificate["status"] == summary["status"],
        "verdict": words[0] == words[1],
        "summary": counted is None or tally_of(summary, certificate["audit"]) == counted,
        "request": not asked["clients"] or set(asked["clients"]) == set(summary["forget"]),
        "federation": certificate["federation"] == schema.federation(summary, certificate["config"]),
        "start": is_stage("start", "initial"),
        "kept": is_stage("kept", summary["final"]),
        "position": (certificate["position"] == 1) == (certificate["previous"] is None),
        "requests": certificate["requests"] == sorted(certificate["requests"], key=lambda entry: entry["number"]),
        "files": needed <= files.keys(),
        "audit": (certificate["audit"] is not None) == ("audit.json" in files),
        "earlier": (certificate["earlier"] is not None) == ("earlier.json" in files),
        "config": _same_method(certificate["config"], summary),
    }
    return [part for part, agrees in agree.items() if not agrees]


def _rounds(summary: Mapping[str, Any]) -> int:
    cost = summary.get("cost")
    found = cost.get("rounds") if isinstance(cost, dict) else 0
    return found if isinstance(found, int) else 0


def _same_method(config: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """Return whether configuration and summary name the same method; ", one by one" may follow it in the summary."""
    method, named = config.get("method"), summary.get("method")
    if not isinstance(method, dict) or "name" not in method or named is None:
        return True
    return bool(str(named).removesuffix(", one by one") == method["name"])


def _dates(certificate: dict[str, Any]) -> list[str]:
    """Return what is impossible: a request answered before it came, or a certificate of the future."""
    summary, audit = certificate["summary"], certificate["audit"] or {}
    created = when(certificate["created"])
    if created is None:
        return [f"{certificate['created']!r} is no date"]
    wrong = (
        [] if created <= datetime.now(UTC) + SKEW else [f"it was created on {certificate['created']}, in the future"]
    )
    before = {"request.received": certificate["request"].get("received"), "summary.created": summary.get("created")}
    before |= {"audit.created": audit.get("created")}
    before |= {f"request {entry['number']}": entry["received"] for entry in certificate["requests"]}
    for what, text in before.items():
        date = when(text) if text is not None else created
        if date is None:
            wrong.append(f"{what} is {text!r}, no date")
        elif date > created + SKEW:
            wrong.append(f"{what} is {text}, after the certificate")
    return wrong


def when(text: Any) -> datetime | None:
    """Return a date that was written as ISO 8601, without a time zone in UTC; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None


def rounds_of(certificate: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Check that the rounds are those that the summary counts."""
    numbers, count = [line.get("round") for line in lines], _rounds(certificate["summary"])
    if numbers != list(range(1, count + 1)):
        text = f"rounds.jsonl has {len(lines)} rounds, numbered otherwise than the {count} rounds of the summary."
        return [Finding(FAILED, "rounds", text)]
    return [Finding(OK, "rounds", f"rounds.jsonl has the {count} rounds of the summary.")] if count else []
