"""Requests and their state in words."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from fupareto.evidence.entries import Asked
from fupareto.evidence.ledger import Ledger


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: "3, 5 and 7"."""
    *most, last = words or [""]
    return " and ".join(filter(None, [", ".join(most), last]))


def what(request: Mapping[str, Any]) -> str:
    """Return what a request asks to forget."""
    clients, samples, classes = (request.get(kind) or () for kind in ("clients", "samples", "classes"))
    if clients:
        return f"all data of client{'' if len(clients) == 1 else 's'} {listed(list(clients))}"
    if samples:
        count = sum(len(rows) for rows in samples.values())
        who = f"client{'' if len(samples) == 1 else 's'} {listed(list(samples))}"
        return f"{count} training sample{'' if count == 1 else 's'} of {who}"
    return f"the class{'' if len(classes) == 1 else 'es'} {listed([str(c) for c in classes])}"


def state(asked: Asked, today: date) -> str:
    """Return whether a request is open, with the days left, answered or withdrawn."""
    if asked.answer is not None:
        verified = "" if asked.answer["status"] == "complete" else ", not verified"
        return f"answered on {asked.answer['at'][:10]}{verified}"
    if asked.withdrawal is not None:
        return f"withdrawn on {asked.withdrawal['at'][:10]}"
    days = asked.days_left(today)
    if days < 0:
        return f"{-days} day{'' if days == -1 else 's'} overdue"
    return f"{days} day{'' if days == 1 else 's'} left"


def origin(numbers: Sequence[int]) -> str:
    """Return requests by their numbers: "request 3", "requests 3 and 4"."""
    return f"request{'' if len(numbers) == 1 else 's'} {listed([str(n) for n in numbers])}"


def later(ledger: Ledger, number: int) -> dict[str, str]:
    """Return what was measured of a request on later models, by the name of the model."""
    found = {}
    for entry in ledger.entries:
        for numbers, measured in (entry.content.get("earlier") or {}).items():
            if str(number) in numbers.split(","):
                name = origin(entry["requests"]) if entry.kind == "answer" else f"{entry['at'][:10]} (adopted)"
                found[name] = str(measured["text"])
    return found


def still(ledger: Ledger, number: int) -> str:
    """Return the latest result of measuring a request again: held, back, unknown; empty if it was not."""
    result = ""
    for entry in ledger.entries:
        for numbers, measured in (entry.content.get("earlier") or {}).items():
            if str(number) in numbers.split(","):
                result = str(measured["result"])
    return result
