"""The page's sections on rounds, cost, missing clients and provenance."""

import json
from itertools import groupby
from statistics import median
from typing import Any

from fupareto.report.figures.cost import compared, traffic
from fupareto.report.markup import (
    Safe,
    count,
    decimal,
    duration,
    join,
    measured,
    number,
    percent,
    size,
    tag,
)
from fupareto.report.parts import cell, figure, note, row, section, table
from fupareto.report.style import MARKERS, OTHER, rank
from fupareto.report.view import ACTIVITY, FAILED, RunView, outcome

PHASES = {
    "renew": "renewal: the model, mixed with a fresh one, is trained by the retained clients",
    "improve": "Pareto improvement: a step that no client's loss vetoed",
    "expand": "Pareto expansion: no improvement was found; a step orthogonal to the retained clients' gradients",
    "recover": "recovery of the retained clients' accuracy",
    FAILED: "no step length was acceptable; the model did not change",
    "train": "ordinary federated training",
}


def rounds(run: RunView) -> Safe:
    """What the rounds did: how many of each kind, and how the step was found."""
    title = "Rounds by kind"
    if not run.history and not run.counts:
        return section("rounds", title, note("No rounds were recorded."))
    own = run.summary.get("phases") or {}
    rows = []
    for phase, times in sorted(run.counts.items(), key=lambda pair: rank(pair[0])):
        shape = tag("span", MARKERS.get(phase, OTHER)[1], class_="shape", aria_hidden="true")
        key = f"phases.{phase}" if phase in own else None
        rows.append(row(join(shape, phase), cell(number(key, times, count)), tag("td", PHASES.get(phase, ""))))
    caption = (
        "Above, the step that each round accepted, on a logarithmic axis; the thin line spans the steps that it tried, "
        "and a cross marks a round that accepted none. Below, what kind of round it was."
    )
    return section(
        "rounds",
        title,
        table(["kind", "rounds", "what happened"], rows, title, "kinds", words=(0, 2)),
        _steps(run),
        figure("search", run, caption, "The rounds of this method search no step.") if run.history else None,
        _log(run),
    )


def _steps(run: RunView) -> Safe | None:
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


def _log(run: RunView) -> Safe | None:
    """Every round, one line each."""
    if not run.history:
        return None
    columns = (
        ("step", "step", decimal),
        (run.forgetting, run.forgetting_title, percent),
        ("r_acc", "R-Acc", percent),
        ("distance", "distance", decimal),
        ("seconds", "time", duration),
    )
    rows = []
    for record in run.history:
        stage = str(record.get("stage", ""))
        rows.append(
            tag(
                "tr",
                cell(record.get("round", "")),
                tag("td", ACTIVITY.get(stage, stage)),
                tag("td", outcome(record)),
                cell(number(None, len(record.get("tried") or []), count)),
                *(cell(number(None, record.get(key), form)) for key, _, form in columns),
                tag("td", record.get("note") or ""),
            )
        )
    heads = ["round", "stage", "kind", "steps tried", *(title for _, title, _ in columns), "note"]
    content = table(heads, rows, "Every round", "dense", words=(1, 2, len(heads) - 1))
    return tag("details", tag("summary", f"Every round ({count(len(rows))})"), content, class_="log")


COSTS = (
    ("rounds", "rounds", count),
    ("seconds", "time", duration),
    ("passes", "passes over clients' data", count),
    ("bytes_up", "sent by clients", size),
    ("bytes_down", "sent to clients", size),
)


def cost(run: RunView) -> Safe:
    """What the run cost in rounds, time and traffic, and what retraining cost where that is known."""
    spent, anew = run.summary.get("cost") or {}, run.audited("truth")
    title = "Cost"
    if not anew:
        items = [
            tag("div", tag("dt", name), number(f"cost.{key}", spent.get(key), form, "dd")) for key, name, form in COSTS
        ]
        return section("cost", title, tag("dl", *items, class_="facts"), _renewal(run))
    rows = []
    for key, name, form in COSTS:
        own, other = measured(spent.get(key)), measured(anew.get(key))
        times = other / own if own and other is not None else None
        rows.append(
            row(
                name.capitalize(),
                cell(number(f"cost.{key}", own, form)),
                cell(number(f"audit.truth.{key}", other, form)),
                cell(number(None, times, _times)),
            )
        )
    caption = "Solid bars are this run, hatched bars retraining without the forgotten data."
    return section(
        "cost",
        title,
        tag("p", _beside(run)),
        figure("cost", run, caption, "There is no measure that both have."),
        table(["", "this run", "retraining", "retraining / this run"], rows, title),
        _renewal(run),
    )


def _renewal(run: RunView) -> Safe | None:
    """What renewal alone would have cost: its rounds and bytes beside those of the run and of retraining."""
    renewing = [record for record in run.rounds if record.get("phase") == "renew"]
    if not renewing or len(renewing) == len(run.rounds):
        return None
    alone: dict[str, Any] = {"rounds": len(renewing)}
    for key in ("bytes_up", "bytes_down"):
        alone[key] = sum(measured(record.get(key)) or 0.0 for record in renewing)
    costs = [("this run", run.summary.get("cost") or {}), ("retraining", run.audited("truth") or {})]
    others = [f"{name}: {words}" for name, words in ((name, _spent(found)) for name, found in costs) if words]
    beside = f" ({'; '.join(others)})" if others else ""
    return tag("p", f"Renewal alone would have cost {_spent(alone)}{beside}.")


def _spent(found: dict[str, Any]) -> str:
    """Rounds and bytes in words; empty where neither is known."""
    times, bytes_ = measured(found.get("rounds")), traffic(found)
    words = [f"{count(times)} rounds" if times is not None else "", size(bytes_) if bytes_ is not None else ""]
    return " and ".join(filter(None, words))


def _times(value: float) -> str:
    return f"{value:.1f} ×" if value >= 1 else f"{value:.2f} ×"


def _beside(run: RunView) -> str:
    """Retraining beside this run, in words."""
    ratios = [(what, other / own) for what, own, other, _ in compared(run) if own]
    if not ratios:
        return ""
    parts = [f"{_times(ratio).replace(' ×', ' times')} the {what}" for what, ratio in ratios]
    *most, last = parts
    text = f"Retraining took {' and '.join(filter(None, [', '.join(most), last]))} of this run."
    dearer = [what for what, ratio in ratios if ratio < 1]
    return text + (f" This run cost more than retraining in {' and '.join(dearer)}." if dearer else "")


def _ranges(numbers: list[int]) -> str:
    """ "1–4, 7" for 1, 2, 3, 4, 7."""
    parts = []
    for _, group in groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0]):
        run = [value for _, value in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}")
    return ", ".join(parts)


def missing(run: RunView) -> Safe:
    """The missing clients, when and why; a missing client is never counted as forgotten."""
    if not run.absences:
        return section("missing", "Missing clients", tag("p", "Every client answered every question."))
    rows = []
    for name, times in run.absences.items():
        when = [place for place, _ in times if isinstance(place, int)]
        reasons = list(dict.fromkeys(reason for _, reason in times))
        side = "forget" if name in run.forget else "retained"
        texts = [tag("td", text) for text in (_ranges(when) or "–", "; ".join(reasons) or "–")]
        rows.append(row(tag("bdi", run.shown(name)), tag("td", side), cell(len(when) if when else "–"), *texts))
    heads = ["client", "side", "rounds missed", "which", "reason"]
    content = table(heads, rows, "Missing clients", words=(0, 1, 3, 4))
    warning = None
    if any(name in run.forget for name in run.absences):
        text = "A forget client was missing at times. A missing client is never counted as forgotten."
        warning = tag("p", text, class_="warning")
    return section("missing", "Missing clients", warning, content)


def _flat(value: Any, path: str = "") -> list[tuple[str, str]]:
    """A nested configuration as dotted keys and values as text."""
    if isinstance(value, dict) and value:
        return [pair for key, inner in value.items() for pair in _flat(inner, f"{path}.{key}" if path else str(key))]
    shown = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return [(path, shown)]


def _pairs(pairs: list[tuple[str, str]]) -> Safe:
    rows = [tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in pairs]
    return tag("table", tag("tbody", *rows), class_="pairs")


def provenance(run: RunView) -> Safe:
    """Everything needed to repeat the run."""
    about = run.summary
    facts = [
        (key, str(about[key]))
        for key in ("name", "created", "status", "method", "dataset", "model", "seed")
        if about.get(key) is not None
    ]
    facts += [(f"{package} version", str(version)) for package, version in (about.get("versions") or {}).items()]
    facts += [
        (f"audit {key}", str(run.audited(key))) for key in ("created", "seed", "tier") if run.audited(key) is not None
    ]
    facts += [(f"audit threshold {key}", text) for key, text in _flat(run.audited("thresholds") or {}) if key]
    content = _pairs(_flat(run.config)) if run.config else note("No configuration was recorded.")
    return section(
        "provenance",
        "Provenance",
        _pairs(facts),
        tag("details", tag("summary", "Configuration of the experiment"), content, class_="config"),
    )
