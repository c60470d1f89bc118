"""Tables of a bench's results and cost, for the terminal, as Markdown and as LaTeX.

Everything is made from ``results.json``, so that a table can be written again long after the runs are gone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fupareto import paper
from fupareto.report.bench.aggregate import (
    COSTS,
    INITIAL,
    Results,
    Row,
    aggregate,
    cells,
    known_as,
    known_by,
    printed,
    spent,
)
from fupareto.report.bench.lasting import lasting, narrow
from fupareto.report.bench.membership import membership
from fupareto.report.markup import count, size
from fupareto.report.sheet import Sheet, to_latex, to_markdown, to_rich, to_text

__all__ = ["aggregate", "costs", "files", "latex", "markdown", "spread", "table", "terminal"]

SHORT = {"not applicable": "n/a"}  # of a status, in narrow columns
NONE = "–"
SPENT = (
    "Rounds and traffic of unlearning and recovery together; stored: what the server keeps beside the model.",
    "Passes: how often one client went over its training data; a pass forward alone counts a third.",
    "Seconds as measured on this machine, whatever else it did; measuring the models is not part of them.",
)
FAINT = 0.25  # below it, an initial model knows too little of the forget clients to measure forgetting


# What was measured -----------------------------------------------------------------------------------------------


def table(results: Results, only: str | None = None) -> Sheet:
    """Return ASR and R-Acc, a row per method and stage; columns for every setting, or for one."""
    settings = [s for s in results["settings"] if only in (None, s["name"])]
    columns = [("", "method"), ("", "stage")]
    for setting in settings:
        known = "ASR" if known_by(results, setting["name"]) == "asr" else "forget acc."
        group = setting["name"] if only is None else ""
        columns.append((group, f"{known} / R-Acc (std)"))
        columns += [(group, "paper")] if setting["paper"] else []
    marks = _Marks()
    rows = []
    for label, stage, found in _lines(results, settings):
        texts: list[str] = []
        for setting in settings:
            row = found.get(setting["name"])
            texts.append(_measures(results, row) if row else marks.lacking(results, setting["name"], label))
            texts += [_cell(printed(results, setting, label, stage))] if setting["paper"] else []
        rows.append([label, stage, *texts])
    notes = [*marks.notes, *_faint(results, settings), *_gaps(results, settings)]
    return Sheet(_title(results, only), columns, 2, _grouped(rows), about(results), notes)


def _title(results: Results, only: str | None) -> str:
    return str(results["title"]) if only is None else f"{results['title']}: {only}"


def spread(results: Results) -> Sheet | None:
    """Return how far the seeds lie apart; None when nothing was repeated."""
    if all(row.seeds < 2 for row in aggregate(results)):
        return None
    columns = [("", "method"), ("", "stage")]
    for setting in results["settings"]:
        known = "ASR" if known_by(results, setting["name"]) == "asr" else "forget acc."
        columns.append((setting["name"], f"{known} / R-Acc"))
    rows = []
    for label, stage, found in _lines(results, results["settings"]):
        texts = []
        for setting in results["settings"]:
            row = found.get(setting["name"])
            pair = [row.spread[k] if row else None for k in (known_by(results, setting["name"]), "r_acc")]
            texts.append(NONE if pair == [None, None] else " / ".join(f"±{_three(value)}" for value in pair))
        rows.append([label, stage, *texts])
    sentences = ["The standard deviation of the numbers above over seeds."]
    return Sheet(f"{results['title']}: spread over seeds", columns, 2, _grouped(rows), sentences)


def _lines(results: Results, settings: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, dict[str, Row]]]:
    """Yield label and stage of every line, with the settings' rows; a method without any has a line all the same."""
    names = {s["name"] for s in settings}
    rows = [row for row in aggregate(results) if row.setting in names]
    for label in (INITIAL, *(m["label"] for m in results["methods"])):
        mine = [row for row in rows if row.label == label]
        stages = [s for s in ("initial", "unlearned", "recovered") if any(row.stage == s for row in mine)]
        for stage in stages or ["initial" if label == INITIAL else "unlearned"]:
            yield label, stage, {row.setting: row for row in mine if row.stage == stage}


def _measures(results: Results, row: Row) -> str:
    known, r_acc, std = (row.mean[key] for key in (known_by(results, row.setting), "r_acc", "r_acc_std"))
    return f"{_three(known)} / {_three(r_acc)} ({_three(std)})"


def _cell(cell: paper.Cell | None) -> str:
    return NONE if cell is None else f"{cell['asr']:.3f} / {cell['r_acc']:.3f} ({cell['r_acc_std']:.3f})"


def _three(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _grouped(rows: list[list[str]]) -> list[list[str]]:
    """Name a method only in its first row."""
    return [["", *row[1:]] if k and rows[k - 1][0] == row[0] else row for k, row in enumerate(rows)]


class _Marks:
    """Numbers the reasons why cells are empty."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def lacking(self, results: Results, setting: str, label: str, short: bool = False) -> str:
        """Return what an empty cell says; a reason is noted once."""
        errors = [c for c in cells(results, setting, label) if "error" in c]
        if not errors:
            return NONE
        status = errors[0]["status"]
        note = f"{label}, {setting}, {status}: {'; '.join(dict.fromkeys(c['error'] for c in errors))}"
        known = [text.partition(" ")[2] for text in self.notes]
        if note not in known:
            known.append(note)
            self.notes.append(f"({len(known)}) {note}")
        return f"{SHORT.get(status, status) if short else status} ({known.index(note) + 1})"


def _faint(results: Results, settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say where the initial model has hardly learnt what is to be forgotten: every method looks good there."""
    names, notes = [s["name"] for s in settings], []
    for row in aggregate(results):
        key = known_by(results, row.setting)
        known = row.mean[key]
        if row.label == INITIAL and row.setting in names and known is not None and known < FAINT:
            notes.append(
                f"{row.setting}: {INITIAL} hardly knows what is to be forgotten ({known_as(key)} {_three(known)}), so "
                "this says little about forgetting; training longer or in smaller batches would."
            )
    return notes


def _gaps(results: Results, settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say where a mean is over fewer seeds than were asked for, and where a result is not verified."""
    notes = []
    for setting in settings:
        asked = len(setting["seeds"])
        for method in results["methods"]:
            name, found = f"{method['label']}, {setting['name']}", cells(results, setting["name"], method["label"])
            done = [c for c in found if "stages" in c]
            lacking = [f"{c['status']} at seed {c['seed']}: {c['error']}" for c in found if "error" in c]
            if len(found) < asked:
                notes.append(f"{name}: {len(found)} of {asked} seeds so far.")
            if done and lacking:
                notes.append(f"{name}: {'; '.join(lacking)}")
            if doubt := [str(c["seed"]) for c in done if c["status"] != "complete"]:
                notes.append(
                    f"{name}: not verified at seed {', '.join(doubt)}, a client to be forgotten did not answer."
                )
    return notes


def about(results: Results) -> list[str]:
    """Return the sentences of every caption."""
    keys = dict.fromkeys(known_by(results, s["name"]) for s in results["settings"])
    names = " or ".join(map(known_as, keys))
    text = [reduced(results), f"{names} of the forgotten (lower is better) / R-Acc."]
    text += [
        "R-Acc: accuracy of retained clients, in parentheses its standard deviation over clients.",
        _seeds(results),
    ]
    if results["paper"]:
        text.append(f"The paper's numbers: {paper.citation()}.")
    if results["paper"] == "ablation":
        text.append("It does not say after which stage its ablation was measured.")
    return [sentence for sentence in text if sentence]


def reduced(results: Results) -> str:
    """Return what is smaller than in the paper, as a sentence; empty for nothing."""
    if results["scale"] != "full":
        return f"{results['scale'].upper()} SCALE, reduced: {results['reduced']}."
    return f"Reduced: {results['reduced']}." if results["reduced"] else ""


def _seeds(results: Results) -> str:
    sets = {s["name"]: s["seeds"] for s in results["settings"]}
    same = next(iter(sets.values()))
    if all(seeds == same for seeds in sets.values()):
        return f"One seed ({same[0]})." if len(same) == 1 else f"Means over {len(same)} seeds ({_listed(same)})."
    return f"Means over seeds: {'; '.join(f'{name}: {len(s)} ({_listed(s)})' for name, s in sets.items())}."


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


# What it cost ----------------------------------------------------------------------------------------------------


def costs(results: Results, only: str | None = None) -> Sheet:
    """Return rounds, traffic, storage and time of every method, in every setting or in one."""
    retraining = next((m["label"] for m in results["methods"] if m["method"].partition(":")[0] == "retrain"), "")
    columns = ["setting", "method", "rounds", "passes", "up", "down", "stored", "seconds"]
    columns += ["ratio"] if retraining else []
    marks = _Marks()
    rows = []
    for setting in (s["name"] for s in results["settings"] if only in (None, s["name"])):
        base = spent(results, setting, retraining)["seconds"]
        for label in (m["label"] for m in results["methods"]):
            took = spent(results, setting, label)
            if took["rounds"] is None:
                texts = [marks.lacking(results, setting, label, short=True), *[NONE] * (len(columns) - 3)]
            else:
                texts = [_in_units(key, took[key]) for key in COSTS]
                texts += [_ratio(took["seconds"], base)] if retraining else []
            rows.append([setting, label, *texts])
    heads = [("", name) for name in columns]
    if only is not None:
        heads, rows = heads[1:], [row[1:] for row in rows]
    sentences = [
        reduced(results),
        *SPENT,
        f"Ratio: the seconds of {retraining} are 1." if retraining else "",
        _seeds(results),
    ]
    left = 2 if only is None else 1
    return Sheet(f"{_title(results, only)}, cost", heads, left, _grouped(rows), [*filter(None, sentences)], marks.notes)


def _in_units(key: str, value: float | None) -> str:
    if value is None:
        return NONE
    return count(value) if key in ("rounds", "passes") else f"{value:.1f}" if key == "seconds" else size(value)


def _ratio(value: float | None, base: float | None) -> str:
    if value is None or not base:
        return NONE
    return f"{value / base:.2f}" if value >= 0.1 * base else f"{value / base:.4f}"


# As text ---------------------------------------------------------------------------------------------------------


def markdown(results: Results) -> str:
    """Return the table of results, and the spread over seeds where there are several, as Markdown."""
    return "\n".join(to_markdown(sheet) for sheet in (table(results), spread(results)) if sheet)


def latex(results: Results) -> str:
    """Return the same as LaTeX."""
    sheets = {results["name"]: table(results), f"{results['name']}-spread": spread(results)}
    return "\n".join(to_latex(sheet, label) for label, sheet in sheets.items() if sheet)


def files(results: Results) -> dict[str, str]:
    """Return the tables as files; one of membership attacks and one of what lasts where there were any."""
    attacked, later = membership(results), lasting(results)
    told = {
        "membership.md": "\n".join(map(to_markdown, attacked)),
        "membership.tex": "\n".join(
            to_latex(sheet, f"{results['name']}-membership-{k}") for k, sheet in enumerate(attacked)
        ),
    }
    lasts = {
        "lasting.md": "\n".join(map(to_markdown, later)),
        "lasting.tex": "\n".join(to_latex(sheet, f"{results['name']}-lasting-{k}") for k, sheet in enumerate(later)),
    }
    return {
        **(told if attacked else {}),
        **(lasts if later else {}),
        "table.md": markdown(results),
        "table.tex": latex(results),
        "cost.md": to_markdown(costs(results)),
        "cost.tex": to_latex(costs(results), f"{results['name']}-cost"),
    }


def terminal(results: Results) -> list[Any]:
    """Return what a terminal shows: results and cost in a table per setting, each with its caption."""
    shown: list[Any] = []
    for make, sentences in ((table, about(results)), (costs, costs(results).about)):
        for setting in results["settings"]:
            sheet = make(results, setting["name"])
            shown += [to_rich(sheet), *([to_text((), sheet.notes)] if sheet.notes else [])]
        shown.append(to_text(sentences, ()))
    for sheet in lasting(results):
        shown += [to_rich(narrow(sheet)), to_text(sheet.about, ())]
    return shown
