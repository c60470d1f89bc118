"""Index of a ledger: one page over all requests, runs and models, which a team keeps open."""

import re
from datetime import UTC, date, datetime
from pathlib import Path

from fupareto.errors import UserError
from fupareto.evidence.entries import MODELS, Asked, Entry
from fupareto.evidence.ledger import Ledger
from fupareto.files import put
from fupareto.report.ledger.words import origin, state, still, what
from fupareto.report.markup import Safe, join, tag
from fupareto.report.page.document import document
from fupareto.report.parts import row, section, table
from fupareto.tally import words

SOON = 7  # days before a deadline from which a request is marked
STILL = {"held": "still forgotten", "back": "has come back", "unknown": "cannot be said"}
DATES = (("received", "received"), ("due", "deadline"))
KINDS = {"held": "shown", "back": "refuted", "unknown": "open"}


def write(ledger: Ledger, today: date | None = None) -> Path:
    """Write index.html into the ledger's directory and return its path."""
    path = ledger.path / "index.html"
    try:
        put(path, render(ledger, today or datetime.now(UTC).date()).encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return path


def render(ledger: Ledger, today: date) -> str:
    """Return the page."""
    requests = ledger.requests
    waiting = [asked for asked in requests if asked.open]
    answered = [asked for asked in requests if asked.answer is not None]
    withdrawn = len(requests) - len(waiting) - len(answered)
    overdue = [asked for asked in waiting if asked.days_left(today) < 0]
    back = [asked for asked in requests if still(ledger, asked.number) == "back"]
    counts = f"{len(waiting)} open, {len(answered)} answered" + (f", {withdrawn} withdrawn" if withdrawn else "")
    clients = ledger.federation["clients"]
    head = join(
        tag("p", f"Erasure requests · as of {today.isoformat()}", class_="eyebrow"),
        tag("h1", f"{_count(len(requests), 'request')}, {_count(len(clients), 'client')}: {counts}"),
        _warnings(overdue, back),
        tag(
            "div",
            _tile("Open", len(waiting), _next(waiting, today)),
            _tile("Overdue", len(overdue), "past their deadline"),
            _tile("Answered", len(answered), f"by {_count(len(ledger.answers), 'model')}"),
            _tile("Come back", len(back), "measured again on later models"),
            class_="tiles",
        ),
    )
    parts = (head, _requests(ledger, requests, today), _models(ledger), _integrity(ledger))
    return document(f"Requests · {counts}", *parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _warnings(overdue: list[Asked], back: list[Asked]) -> Safe:
    texts = []
    if overdue:
        texts.append(f"{origin([a.number for a in overdue]).capitalize()}: past the deadline.")
    if back:
        texts.append(f"{origin([a.number for a in back]).capitalize()}: what was forgotten has come back.")
    return join(*(tag("p", text, class_="warning") for text in texts))


def _next(waiting: list[Asked], today: date) -> str:
    if not waiting:
        return "nothing to do"
    soonest = min(waiting, key=lambda asked: asked.days_left(today))
    return f"next: request {soonest.number}, {soonest.entry['deadline']}"


def _tile(label: str, number: int, text: str) -> Safe:
    return tag(
        "div",
        tag("p", label, class_="label"),
        tag("p", number, class_="big"),
        tag("p", text, class_="small"),
        class_="tile",
    )


def _requests(ledger: Ledger, requests: list[Asked], today: date) -> Safe:
    if not requests:
        return section("requests", "Requests", tag("p", "None so far. Add one: fupareto requests add", class_="note"))
    ordered = sorted(requests, key=lambda a: (not a.open, a.entry["deadline"] if a.open else -a.number))
    rows = [_request(ledger, asked, today) for asked in ordered]
    heads = ("Request", "State", "Checks", "On later models", "Papers")
    return section("requests", "Requests", table(heads, rows, "Requests", "requests", words=range(5)))


def _request(ledger: Ledger, asked: Asked, today: date) -> Safe:
    entry, answer = asked.entry, asked.answer
    about = tag("small", _arrival(entry))
    name = join(tag("bdi", f"{asked.number}. {what(entry['request'])}"), about)
    later = still(ledger, asked.number)
    measured = tag("span", STILL[later], class_=f"result {KINDS[later]}") if later else None
    checks = _whole(words(answer["checks"])) if answer is not None else None
    return row(
        name,
        _cell("State", _badge(asked, today)),
        _cell("Checks", checks),
        _cell("On later models", measured),
        _cell("Papers", _links(ledger, asked)),
    )


def _cell(head: str, content: object) -> Safe:
    """A cell with its heading, which a phone shows above it; on a phone, an empty one is left out."""
    if content is None:
        return tag("td", "–", class_="none")
    return tag("td", content, data_head=head)


def _whole(tally: str) -> Safe:
    """Return a tally whose numbers stay on the line of what they count."""
    return Safe(" ".join(tag("span", part, style="white-space:nowrap") for part in re.split(r"(?<=,) ", tally)))


def _arrival(entry: Entry) -> Safe:
    case = f" · {entry['reference']}" if entry.content.get("reference") else ""
    gone = " · client can no longer be reached" if entry.content.get("gone") else ""
    dates = [tag("span", f"{word} {entry[key]}", style="white-space:nowrap") for word, key in DATES]
    return join(dates[0], ", ", dates[1], case, gone)


def _badge(asked: Asked, today: date) -> Safe:
    answer = asked.answer
    if answer is not None:
        checks = answer["checks"] or {}
        good = "refuted" if checks.get("refuted") else "" if checks.get("open") else "shown"
        text, kind = ("answered", good) if answer["status"] == "complete" else ("not verified", "open")
        return join(tag("span", text, class_=f"result {kind}"), tag("small", answer["at"][:10]))
    if (left := asked.withdrawal) is not None:
        return join(tag("span", "withdrawn", class_="result"), tag("small", f"{left['at'][:10]}: {left['reason']}"))
    kind = "refuted" if asked.days_left(today) < SOON else "open"
    return tag("span", state(asked, today), class_=f"result {kind}")


def _links(ledger: Ledger, asked: Asked) -> Safe | None:
    if asked.answer is None:
        return None
    run = str(asked.answer["run"])
    targets = {
        "letter": f"letters/{asked.number}-letter.html",
        "record": f"letters/{asked.number}-record.html",
        "report": f"{run}/report.html",
        "certificate": f"{run}/certificate.json",
    }
    links = [tag("a", name, href=to) for name, to in targets.items() if (ledger.path / to).is_file()]
    return join(*(part for link in links for part in (link, " ")))


def _models(ledger: Ledger) -> Safe:
    """List the models that were in use, the newest first."""
    entries = [entry for entry in ledger.entries if entry.kind in MODELS]
    last = ledger.in_force
    rows = []
    for entry in reversed(entries):
        if entry.kind == "answer":
            name = f"Answer to {origin(entry['requests'])}"
        else:
            name = (
                "Model from before any request" if entry.kind == "opened" else f"Adopted: {entry['note'] or 'no note'}"
            )
        use = tag("span", "in force", class_="result shown") if entry.sha256 == last.sha256 else Safe("superseded")
        rows.append(
            row(
                name,
                _cell("State", use),
                _cell("Since", entry["at"][:10]),
                _cell("Method", entry.content.get("method")),
                _cell("Weights", tag("code", str(entry["weights"])[:16])),
            )
        )
    heads = ("Model", "State", "Since", "Method", "Weights (SHA-256)")
    return section("models", "Models in use", table(heads, rows, "Models in use", "requests", words=range(5)))


def _integrity(ledger: Ledger) -> Safe:
    entries = ledger.entries
    signed = sum(1 for entry in entries if entry.content.get("signature"))
    kind = "entry" if len(entries) == 1 else "entries"
    return section(
        "integrity",
        "This ledger",
        tag("p", f"{len(entries)} {kind}, {signed} of them signed. Each names the one before it."),
        tag("p", "Head: ", tag("code", ledger.head, style="overflow-wrap:anywhere")),
        tag(
            "p",
            "Keep the head outside of this directory, such as in the letter to each requester: with it, nobody can "
            "cut off or rewrite what came before it without notice (fupareto verify --ledger --head).",
            class_="small",
        ),
    )
