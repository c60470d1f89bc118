"""How did the run get there? The page's sections on rounds, cost, missing clients and provenance."""

import json
from itertools import groupby
from statistics import median
from typing import Any

from fupareto.report.figures import MARKERS, OTHER, rank
from fupareto.report.markup import (
    Safe,
    count,
    decimal,
    duration,
    measured,
    number,
    percent,
    size,
    tag,
)
from fupareto.report.sections import section
from fupareto.report.view import ACTIVITY, FAILED, Run, outcome

PHASES = {
    "improve": "forgot and learnt at once, with a step that every client could live with",
    "expand": "nothing suited everyone: forgot more, in a direction that retained clients do not feel",
    "recover": "repaired the accuracy of the retained clients",
    FAILED: "no step length was acceptable; the model stayed where it was",
    "train": "ordinary federated training",
}


def _scroll(table: Safe, label: str) -> Safe:
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def rounds(run: Run) -> Safe:
    """What the rounds did: how many of each kind, and how the step was found."""
    if not run.history and not run.counts:
        return section("rounds", "What each round did", tag("p", "No rounds were recorded.", class_="note"))
    own = run.summary.get("phases") or {}
    rows = []
    for phase, times in sorted(run.counts.items(), key=lambda pair: rank(pair[0])):
        shape = tag("span", MARKERS.get(phase, OTHER)[1], class_="shape", aria_hidden="true")
        key = f"phases.{phase}" if phase in own else None
        rows.append(
            tag(
                "tr",
                tag("th", shape, phase, scope="row"),
                number(key, times, count, "td", class_="number"),
                tag("td", PHASES.get(phase, "")),
            )
        )
    heads = tag(
        "tr",
        tag("th", "kind", scope="col"),
        tag("th", "rounds", scope="col", class_="number"),
        tag("th", "what happened", scope="col"),
    )
    table = tag("table", tag("thead", heads), tag("tbody", *rows), class_="plain kinds")
    return section("rounds", "What each round did", table, _steps(run), _log(run))


def _steps(run: Run) -> Safe | None:
    """How hard the search for a step was, in one sentence."""
    searched = [record for record in run.history if record.get("tried")]
    if not searched:
        return None
    tried = sum(len(record["tried"]) for record in searched)
    steps = [step for step in (measured(record.get("step")) for record in searched) if step is not None]
    at_once = sum(len(record["tried"]) == 1 and record.get("step") is not None for record in searched)
    text = (
        f"Search for the step: {count(tried)} steps were tried in {count(len(searched))} rounds "
        f"({tried / len(searched):.1f} per round); {count(at_once)} rounds accepted the first."
    )
    if steps:
        low, middle, high = decimal(min(steps)), decimal(median(steps)), decimal(max(steps))
        text += f" Accepted steps lie between {low} and {high}, median {middle}."
    return tag("p", text)


def _log(run: Run) -> Safe | None:
    """Every round, one line each."""
    if not run.history:
        return None
    titles = ("round", "stage", "kind", "steps tried", "step", "ASR", "R-Acc", "distance", "time", "note")
    heads = [
        tag("th", title, scope="col", class_=None if title in ("stage", "kind", "note") else "number")
        for title in titles
    ]
    rows = []
    for record in run.history:
        stage = str(record.get("stage", ""))
        rows.append(
            tag(
                "tr",
                tag("td", record.get("round", ""), class_="number"),
                tag("td", ACTIVITY.get(stage, stage)),
                tag("td", outcome(record)),
                number(None, len(record.get("tried") or []), count, "td", class_="number"),
                *(
                    number(None, record.get(key), form, "td", class_="number")
                    for key, form in (
                        ("step", decimal),
                        ("asr", percent),
                        ("r_acc", percent),
                        ("distance", decimal),
                        ("seconds", duration),
                    )
                ),
                tag("td", record.get("note") or ""),
            )
        )
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="plain dense")
    summary = tag("summary", f"Every round ({count(len(rows))})")
    return tag("details", summary, _scroll(table, "Every round"), class_="log")


def cost(run: Run) -> Safe:
    """What the run cost in rounds, time and traffic."""
    spent = run.summary.get("cost") or {}
    items = []
    for key, title, form in (
        ("rounds", "rounds", count),
        ("seconds", "time", duration),
        ("bytes_up", "sent by clients", size),
        ("bytes_down", "sent to clients", size),
    ):
        items.append(tag("div", tag("dt", title), number(f"cost.{key}", spent.get(key), form, "dd")))
    return section("cost", "What it cost", tag("dl", *items, class_="facts"))


def _ranges(numbers: list[int]) -> str:
    """ "1–4, 7" for 1, 2, 3, 4, 7."""
    parts = []
    for _, group in groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0]):
        run = [value for _, value in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}")
    return ", ".join(parts)


def missing(run: Run) -> Safe:
    """Who failed to answer, when and why; a missing client is never counted as forgotten."""
    if not run.absences:
        return section("missing", "Missing clients", tag("p", "Every client answered every question."))
    rows = []
    for name, times in run.absences.items():
        when = [place for place, _ in times if isinstance(place, int)]
        reasons = list(dict.fromkeys(reason for _, reason in times))
        side = "to be forgotten" if name in run.forget else "retained"
        rows.append(
            tag(
                "tr",
                tag("th", tag("bdi", name), scope="row"),
                tag("td", side),
                tag("td", len(when) if when else "–", class_="number"),
                tag("td", _ranges(when) or "–"),
                tag("td", "; ".join(reasons) or "–"),
            )
        )
    heads = [
        tag("th", title, scope="col", class_="number" if title == "rounds missed" else None)
        for title in ("client", "side", "rounds missed", "which", "reason")
    ]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="plain")
    warning = None
    if any(name in run.forget for name in run.absences):
        text = "A client to be forgotten did not always answer. A missing client is never counted as forgotten."
        warning = tag("p", text, class_="warning")
    return section("missing", "Missing clients", warning, _scroll(table, "Missing clients"))


def _flat(value: Any, path: str = "") -> list[tuple[str, str]]:
    """A nested configuration as dotted keys and values as text."""
    if isinstance(value, dict) and value:
        return [pair for key, inner in value.items() for pair in _flat(inner, f"{path}.{key}" if path else str(key))]
    shown = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return [(path, shown)]


def _pairs(pairs: list[tuple[str, str]]) -> Safe:
    rows = [tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in pairs]
    return tag("table", tag("tbody", *rows), class_="pairs")


def provenance(run: Run) -> Safe:
    """Everything needed to repeat the run."""
    about = run.summary
    facts = [
        (key, str(about[key]))
        for key in ("name", "created", "status", "method", "dataset", "model", "seed")
        if about.get(key) is not None
    ]
    facts += [(f"{package} version", str(version)) for package, version in (about.get("versions") or {}).items()]
    content = _pairs(_flat(run.config)) if run.config else tag("p", "No configuration was recorded.", class_="note")
    return section(
        "provenance",
        "Provenance",
        _pairs(facts),
        tag("details", tag("summary", "Configuration of the experiment"), content, class_="config"),
    )
