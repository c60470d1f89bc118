"""The page of a bench: sortable tables with the paper's cells beside ours, figures and cost, complete in itself."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from fupareto import paper
from fupareto.report import svg
from fupareto.report.bench import figures, tables
from fupareto.report.bench.aggregate import Results, Row, aggregate, known_by, spent, until
from fupareto.report.bench.lasting import lasting
from fupareto.report.bench.looks import Frame
from fupareto.report.bench.membership import membership
from fupareto.report.bench.verdict import RULE, VERDICTS, model, verdict
from fupareto.report.markup import Safe, count, decimal, duration, join, measured, number, percent, points, size, tag
from fupareto.report.page.document import contents, document
from fupareto.report.parts import cell, note, row, section, table
from fupareto.report.sheet import Sheet

WORDS = ("method", "model")
SPREAD = "Below a mean: its standard deviation over seeds."
MOST = 20  # methods that a figure bears
HIDDEN = f"More than {MOST} methods would hide each other in a figure; the table has all."
CAPTIONS = {
    "convergence": ("Round by round", "Means over seeds. Dash and mark tell the methods apart."),
    "pareto": (
        "Where the methods ended",
        "Better is up and to the left. Hollow is before recovery, solid after it or where there is none.",
    ),
    "lasting": ("When the retained clients train on", "What comes back, by further round. Means over seeds."),
    "reversion": (
        "What may predict it",
        "How much more is remembered at the worst later than now, over the distance and the loss barrier to w0.",
    ),
}
COST = (
    ("rounds", "rounds", count),
    ("passes", "passes", count),
    ("bytes_up", "sent up", size),
    ("bytes_down", "sent down", size),
    ("storage", "stored", size),
    ("seconds", "time", duration),
)
UNTIL = (  # what is also told up to the first round with a low ASR
    *(column for column in COST if column[0] in ("rounds", "passes", "bytes_up", "seconds")),
    ("r_acc", "R-Acc", percent),
)


def render(results: Results, curves: figures.Curves) -> str:
    """Return the page of a bench, from its `results.json` and the recorded rounds, where they are still known."""
    names = [s["name"] for s in results["settings"]]
    layout: list[tuple[str, str, Any]] = [
        (f"setting-{place}", name, partial(_setting, curves, place)) for place, name in enumerate(names)
    ]
    layout += [("cost", "Cost", _cost)]
    layout += [("membership", "Membership", partial(_sheets, "membership", "Membership attacks", membership))]
    layout += [("lasting", "Lasting", partial(_sheets, "lasting", "Does it last", lasting))]
    layout += [("provenance", "Provenance", _provenance)]
    title = f"{results['title']} · bench"
    return document(title, _header(results), *contents(layout, results), script="sort.js")


def _header(results: Results) -> Safe:
    """The title, what is smaller than in the paper, and what is compared."""
    small = tables.reduced(results)
    about = [text for text in tables.about(results) if text != small]
    warned = [tag("p", text, class_="warning") for text in (small, *_unfinished(results)) if text]
    done, asked = len(results["cells"]), sum(len(s["seeds"]) for s in results["settings"]) * len(results["methods"])
    said = f"{len(results['methods'])} methods, {done} of {asked} runs. {' '.join(about)}"
    return tag(
        "header",
        tag("p", f"Bench · {results['name']}", class_="eyebrow"),
        tag("h1", results["title"]),
        *warned,
        tag("p", said, class_="small"),
    )


def _unfinished(results: Results) -> list[str]:
    return [] if results["cells"] else ["No run is finished yet."]


# What was measured -----------------------------------------------------------------------------------------------


def _setting(curves: figures.Curves, place: int, results: Results) -> Safe:
    """The models of a setting, in a table and in figures."""
    setting = results["settings"][place]
    rows = [own for own in aggregate(results) if own.setting == setting["name"]]
    sheet = tables.table(results, setting["name"])
    notes = [tag("p", text, class_="small") for text in sheet.notes]
    many = len(results["methods"]) > MOST
    drawings = [_figure(results, curves, place, name) for name in CAPTIONS] if not many else [note(HIDDEN)]
    told = [tag("p", SPREAD, class_="small")] if any(own.seeds > 1 for own in rows) else []
    told += [tag("p", RULE, class_="small")] if setting["paper"] else []
    content = _models(results, setting, rows) if rows else note("No run of this setting is finished yet.")
    return section(f"setting-{place}", setting["name"], content, *told, *notes, *drawings)


def _models(results: Results, setting: Mapping[str, Any], rows: list[Row]) -> Safe:
    """A row per method and stage: what is remembered, R-Acc, and the same in the paper."""
    known, beside = known_by(results, setting["name"]), bool(setting["paper"])
    first = next((own for own in rows if own.stage == "initial"), None)
    heads: list[object] = [*WORDS, "ASR" if known == "asr" else "forget accuracy", *(["paper"] if beside else [])]
    heads += [join("R-Acc", tag("small", "std over clients")), *(["paper"] if beside else [])]
    heads += ["R-Acc from w0", *(["paper"] if beside else []), "distance", *(["beside the paper"] if beside else [])]
    lines = [_line(own, first, known, beside) for own in rows]
    words = (0, 1, len(heads) - 1) if beside else (0, 1)
    return table(heads, lines, setting["name"], "sortable dense bench", words=words)


def _line(own: Row, first: Row | None, known: str, beside: bool) -> Safe:
    key = f"{own.setting}.{own.label}.{own.stage}"
    printed, start = _cell(own), _cell(first)
    moved, their = (
        _change(values, begun) for values, begun in ((own.mean, first.mean if first else {}), (printed, start))
    )
    cells = [_mean(own, known, key), _printed(printed, "asr", key, beside)]
    cells += [_mean(own, "r_acc", key), _printed(printed, "r_acc", key, beside)]
    cells += [cell(number(f"{key}.change", moved, points)), _moved(their, key, beside)]
    cells += [cell(number(f"{key}.distance", own.mean["distance"], decimal))]
    judged = _judged(own, first) if own.stage != "initial" else None
    cells += [_verdict(judged)] if beside else []
    return row(tag("bdi", own.label), tag("td", own.stage), *cells)


def _mean(own: Row, key: str, place: str) -> Safe:
    """A mean over seeds, with the deviation over clients beside R-Acc and the one over seeds below."""
    spread, seeds = own.mean["r_acc_std"] if key == "r_acc" else None, own.spread[key]
    below = None if seeds is None else tag("small", f"±{100 * seeds:.1f}")
    return cell(number(f"{place}.{key}", own.mean[key], percent), _over_clients(spread), below)


def _printed(printed: Mapping[str, Any], key: str, place: str, beside: bool) -> Safe | None:
    if not beside:
        return None
    spread = _over_clients(printed["r_acc_std"] if printed and key == "r_acc" else None)
    return tag("td", number(f"paper.{place}.{key}", printed.get(key), percent), spread, class_="number printed")


def _over_clients(spread: float | None) -> Safe | None:
    return None if spread is None else tag("span", f" ({100 * spread:.1f})", class_="spread")


def _moved(change: float | None, place: str, beside: bool) -> Safe | None:
    return tag("td", number(f"paper.{place}.change", change, points), class_="number printed") if beside else None


def _change(own: Mapping[str, Any], first: Mapping[str, Any]) -> float | None:
    values = measured(own.get("r_acc")), measured(first.get("r_acc"))
    return None if values[0] is None or values[1] is None else values[0] - values[1]


def _judged(own: Row, first: Row | None) -> str | None:
    """The verdict on a row beside the paper's cell, where both are known."""
    if first is None:
        return None
    ours, theirs = model(own.mean, first.mean), model(_cell(own), _cell(first))
    return verdict(ours, theirs) if ours and theirs else None


def _cell(own: Row | None) -> dict[str, float]:
    """The paper's cell of a row; empty where it has none."""
    return dict(zip(own.paper, map(float, own.paper.values()), strict=True)) if own and own.paper else {}  # type: ignore[arg-type]


def _verdict(judged: str | None) -> Safe:
    if judged is None:
        return tag("td", tag("abbr", "–", title="the paper has no such cell"), data_value="")
    return tag(
        "td", tag("span", judged, class_=f"result {judged.replace(' ', '-')}"), data_value=VERDICTS.index(judged)
    )


def _figure(results: Results, curves: figures.Curves, place: int, name: str) -> Safe | None:
    setting = results["settings"][place]["name"]
    draw = figures.draws(results, curves, setting)[name]
    title, caption = CAPTIONS[name]
    alt = f"{title}: {setting}; the tables have the numbers"
    drawing = svg.inline(lambda make, width: make(Frame(width)), draw, f"{name}-{place}", alt)
    if drawing is None:
        return None
    return join(tag("h3", title), tag("figure", drawing, tag("figcaption", caption), id=f"figure-{name}-{place}"))


# What it cost, and the other tables ------------------------------------------------------------------------------


def _cost(results: Results) -> Safe | None:
    """Rounds, traffic, storage and time of every method in every setting."""
    lines, timed = [], any(c.get("until") for c in results["cells"])
    for setting in (s["name"] for s in results["settings"]):
        for label in (m["label"] for m in results["methods"]):
            took = spent(results, setting, label)
            if took["rounds"] is None:
                continue
            key = f"{setting}.{label}.cost"
            cells = [cell(number(f"{key}.{name}", took[name], form)) for name, _, form in COST]
            if timed:
                low = until(results, setting, label)
                cells += [cell(number(f"{key}.until.{name}", low[name], form)) for name, _, form in UNTIL]
            lines.append(row(tag("bdi", label), tag("td", setting), *cells))
    if not lines:
        return None
    heads: list[object] = ["method", "setting", *(title for _, title, _ in COST)]
    heads += [join(title, tag("small", "until ASR 5%")) for _, title, _ in UNTIL] if timed else []
    content = table(heads, lines, "Cost", "sortable dense bench", words=(0, 1))
    return section("cost", "Cost", content, *(tag("p", text, class_="small") for text in tables.SPENT))


def _sheets(name: str, title: str, make: Any, results: Results) -> Safe | None:
    """A section of tables that are made for Markdown and LaTeX, too."""
    found: list[Sheet] = make(results)
    parts = [join(tag("h3", sheet.title.rpartition(": ")[2]), _sheet(sheet)) for sheet in found]
    about = [tag("p", " ".join(found[0].about), class_="small")] if found else []
    return section(name, title, *about, *parts) if found else None


def _sheet(sheet: Sheet) -> Safe:
    lines = []
    for first, *texts in sheet.rows:
        cells = [tag("td", text) for text in texts[: sheet.left - 1]]
        cells += [tag("td", text, class_="number", data_value=_leading(text)) for text in texts[sheet.left - 1 :]]
        lines.append(row(tag("bdi", first), *cells))
    heads = [name for _, name in sheet.columns]
    return table(heads, lines, sheet.title, "sortable dense bench", words=range(sheet.left))


def _leading(text: str) -> str:
    """The number that a cell begins with, to sort by; empty for none."""
    word = text.partition(" ")[0].replace("\u202f", "")
    try:
        return repr(float(word))
    except ValueError:
        return ""


def _provenance(results: Results) -> Safe:
    """Versions, date, and the settings of the experiment and the methods."""
    pairs = {"created": results.get("created", ""), **results.get("versions", {})}
    lines = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in pairs.items()]
    if results["paper"]:
        lines.append(tag("tr", tag("th", "paper", scope="row"), tag("td", paper.citation())))
    asked = {
        "experiment": results.get("experiment", {}),
        "settings": {s["name"]: s.get("experiment", {}) for s in results["settings"]},
        "options": {c["label"]: c["options"] for c in results["cells"] if c.get("options")},
    }
    details = tag(
        "details",
        tag("summary", "Experiment, settings and options"),
        tag("pre", json.dumps(asked, indent=2, ensure_ascii=False)),
        class_="config",
    )
    return section("provenance", "Provenance", tag("table", tag("tbody", *lines), class_="pairs"), details)
