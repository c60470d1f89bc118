"""Letter to a requester (one page) and record for the file (two pages), from templates that can be replaced.

A template is HTML with names such as ``$received`` in it; every name is listed in docs/requests.md. Values are escaped.
One that is not a whole page (without ``<html``) is put into the layout, which both papers share. Templates in the
directory ``templates`` of the ledger take the place of the built-in ones.
"""

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence import reading, schema, signing
from fupareto.evidence.entries import Asked, Entry
from fupareto.evidence.ledger import Ledger
from fupareto.files import put
from fupareto.report.ledger.words import later, listed, origin, what
from fupareto.report.markup import Safe, escape, join, tag
from fupareto.tally import words

PAPERS = {"letter": "Your request no. {}", "record": "Record of request no. {}"}  # titles
LAYOUT = "layout"
NOT_SHOWN = (
    "that copies of the data, of earlier models or of their checkpoints were deleted elsewhere",
    "that no other attack than those that were tried would find traces of the data",
    "anything about models or data outside of this federation",
)


PLAIN = {  # checks of the audit, by name, in words for the person who asked
    "forgotten": "a hidden mark that only these data had taught the model has stopped working",
    "unknown": "the model is no better on these data than a model that never saw them",
    "lasting": "what was forgotten stays forgotten when the model is trained further without these data",
    "useful": "the model works as well as before for everybody else",
    "exclusive": "nobody else lost much by the removal",
    "private": "a test whether single records were used in training (a membership attack) finds no trace of them",
    "alike": "the answers of the model on these data are like those of a model that never saw them",
    "removed": "the model would have to learn these data again almost from the beginning",
    "unseen": "the model cannot be told from models that never saw these data",
}


def write(ledger: Ledger, number: int, templates: Path | None = None) -> list[Path]:
    """Write the letter and the record of an answered request, and return their paths.

    Args:
        ledger: The ledger.
        number: Number of the request.
        templates: Directory of templates; by default ``templates`` in the ledger, then the built-in ones.
    """
    values = values_of(ledger, number)
    folder, written = ledger.path / "letters", []
    place = templates or ledger.path / "templates"
    if templates and not any((templates / f"{name}.html").is_file() for name in (*PAPERS, LAYOUT)):
        raise UserError(f"{templates} has no template; it takes letter.html, record.html and layout.html")
    for paper, title in PAPERS.items():
        text = _filled(paper, place, values)
        if "<html" not in text.lower():
            text = _filled(LAYOUT, place, {**values, "title": escape(title.format(number)), "body": Safe(text)})
        path = folder / f"{number}-{paper}.html"
        try:
            folder.mkdir(exist_ok=True)
            put(path, text.encode())
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
        written.append(path)
    return written


def _filled(name: str, folder: Path, values: Mapping[str, Safe]) -> str:
    """Return a template of a directory, or the built-in one, with its values."""
    path = folder / f"{name}.html"
    try:
        if path.is_file():
            template = reading.read(path).decode()
        else:
            built_in = resources.files("fupareto.report.ledger").joinpath("templates", f"{name}.html")
            template = built_in.read_text(encoding="utf-8")
        return Template(template).substitute(values)
    except KeyError as error:
        raise UserError(f"the template {path} is not valid: {error}; the names are {', '.join(values)}") from error
    except ValueError as error:
        raise UserError(f"the template {path} is not valid: {error}; write $$ for a dollar sign") from error


def values_of(ledger: Ledger, number: int) -> dict[str, Safe]:
    """Return the values of a template, as HTML."""
    asked = ledger.request(number)
    if asked.withdrawal is not None:
        raise UserError(f"request {number} was withdrawn, so there is no answer to write of")
    if asked.answer is None:
        raise UserError(f"request {number} is not answered yet; answer it with: fupareto requests answer {number}")
    answer = asked.answer
    certificate = schema.load(ledger.certificate_of(answer))
    text = {
        "number": number,
        "reference": asked.entry.content.get("reference") or "–",
        "received": asked.entry["received"],
        "deadline": asked.entry["deadline"],
        "answered": answer["at"][:10],
        "in_time": "in time" if answer["at"][:10] <= asked.entry["deadline"] else "after the deadline",
        "what": what(asked.entry["request"]),
        "together": _together(answer, number),
        "outcome": _outcome(certificate),
        "basis": _basis(ledger, answer),
        "verdict": certificate["verdict"],
        "tally": words(answer["checks"]),
        "method": answer["method"],
        "weights": certificate["kept"]["weights"],
        "digest": certificate["digest"],
        "position": certificate["position"],
        "head": ledger.head,
        "version": f"{certificate['code']['version']} ({certificate['code']['sha256'][:16]})",
    }
    blocks = {
        "checks": _checks(certificate),
        "shown": _claims(certificate, "shown", "It was shown that:", "No check was passed."),
        "open": _claims(certificate, "open", "It could not be decided whether:", "No check was left open."),
        "refuted": _claims(certificate, "refuted", "It was found not to be so that:", "No check failed."),
        "not_shown": _items(NOT_SHOWN),
        "facts": _facts(certificate, asked),
        "earlier": _pairs({f"Request {n}": m["text"] for n, m in (certificate["earlier"] or {}).items()}),
        "later": _pairs(later(ledger, number)),
        "signatures": _signatures(ledger.certificate_of(answer)),
        "files": _pairs(certificate["files"]),
    }
    return {**{key: escape(value) for key, value in text.items()}, **blocks}


def _together(answer: Entry, number: int) -> str:
    others = [n for n in answer["requests"] if n != number]
    return f"It was answered together with {origin(others)}." if others else ""


def _outcome(certificate: Mapping[str, Any]) -> str:
    """Return in one sentence what came of the request, never more than was measured."""
    summary = certificate["summary"]
    if certificate["status"] != "complete" and {*summary["forget"]} & {*summary.get("missing", ())}:
        return (
            "We made a model that should no longer use these data. Because not all of them could be measured, we "
            "cannot show how well the model has forgotten them."
        )
    checks = summary.get("checks") or {}
    if not checks:
        return "We made a model that should no longer use these data. Its forgetting has not been checked."
    if checks.get("refuted"):
        return "We made a new model, but not every check of its forgetting was passed; what failed is listed below."
    if checks.get("open"):
        return (
            "We made a new model. No check of its forgetting failed; some could not be decided, and are listed below."
        )
    return "We made a new model, and it passed every check of its forgetting that we made."


def _basis(ledger: Ledger, answer: Entry) -> str:
    """Return whether the answer is exact or approximate, as the run recorded it."""
    path = ledger.run_of(answer) / "rounds.jsonl"
    lines = reading.read(path).splitlines() if path.is_file() else []
    exact = [json.loads(line).get("exact") for line in lines]
    if any(exact) and all(value is not False for value in exact):
        return "The method is exact: the model is one that was never computed from these data."
    if _anew(ledger.run_of(answer) / "config.toml", answer["method"].partition(":")[0]):
        return "The model was trained anew, without these data."
    return "The method is approximate: it changes a model that had used these data, and measurements say how well."


def _anew(config: Path, method: str) -> bool:
    """Return whether the model began with a fresh one: retraining, or renewal of which nothing remains."""
    options = reading.document(config).get("method", {}) if method == "renew" and config.is_file() else {}
    return method == "retrain" or options.get("remains") == 0


def _made(certificate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    verdict = (certificate["audit"] or {}).get("verdict")
    return [check for check in verdict.get("checks", ()) if isinstance(check, dict)] if verdict else []


def _claims(certificate: Mapping[str, Any], result: str, lead: str, none: str) -> Safe:
    made = [check for check in _made(certificate) if check.get("result") == result]
    claims = [PLAIN.get(str(check.get("name")), str(check.get("claim"))) for check in made]
    return join(tag("p", lead), _items(claims)) if claims else tag("p", none)


def _items(texts: Any) -> Safe:
    return tag("ul", *(tag("li", text) for text in texts))


def _pairs(found: Mapping[str, Any]) -> Safe:
    if not found:
        return tag("p", "None.")
    return tag("table", *(tag("tr", tag("th", key), tag("td", value)) for key, value in found.items()))


def _checks(certificate: Mapping[str, Any]) -> Safe:
    rows = [
        tag(
            "tr",
            tag("th", check.get("claim", check.get("name"))),
            tag("td", check.get("result")),
            tag("td", check.get("text")),
        )
        for check in _made(certificate)
    ]
    return tag("table", *rows) if rows else tag("p", "No check was made.")


def _facts(certificate: Mapping[str, Any], asked: Asked) -> Safe:
    audit, summary = certificate["audit"] or {}, certificate["summary"]
    method = certificate["config"].get("method") or {}
    data = summary.get("data") or {}
    limits = audit.get("thresholds") or {}
    return _pairs(
        {
            "Entry of the ledger (SHA-256)": asked.entry.sha256,
            "Certificate": f"number {certificate['position']} of its chain, {certificate['created']}",
            "Digest of the certificate": certificate["digest"],
            "Model before (weights)": certificate["start"]["weights"],
            "Model to keep (weights)": certificate["kept"]["weights"],
            "Method and options": ", ".join(_options(method)),
            "Thresholds": ", ".join(f"{key} {value}" for key, value in limits.items()) or "none",
            "Clients": listed(certificate["federation"]["clients"]),
            "Data of the forgotten (SHA-256)": ", ".join(f"{i}: {data.get(i)}" for i in summary["forget"]),
            "Clients that did not answer": ", ".join(summary.get("missing") or ()) or "none",
            "Retrained and shadow models": ", ".join(one["place"] for one in certificate["references"]) or "none",
        }
    )


def _options(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield settings as words, those of a table with its name before them, as --set takes them."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _options(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key} {str(value).lower() if isinstance(value, bool) else value}"


def _signatures(certificate: Path) -> Safe:
    found = [signature["keyid"] for one in signing.envelopes(certificate) for signature in one["signatures"]]
    return _items(found) if found else tag("p", "It is not signed.")
