"""Tables for the terminal, at most 80 columns wide."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from fupareto.paper import Cell
from fupareto.report.markup import measured as finite
from fupareto.report.task import SIDES, rows, task_name
from fupareto.vocabulary import RETRAINED

COLUMNS = (
    ("ASR", "asr"),
    ("worst", "asr_max"),
    ("R-Acc", "r_acc"),
    ("worst", "r_acc_min"),
    ("forget", "forget_acc"),
    ("AUC", "mia_auc"),
    ("dist.", "distance"),
)


def stage_table(summary: Mapping[str, Any], audit: Mapping[str, Any] | None = None) -> Table:
    """Return the stages of one run, a row each, and where it was audited a retrained model.

    The column "later" is what is remembered, at its worst, while the retained clients train the model on.
    """
    who = summary.get("part") or f"clients {', '.join(summary['forget'])}"
    verb = "forgetting" if len(summary["stages"]) > 1 else "measured on"
    table = Table(title=f"{summary['method']} on {summary['dataset']}, {verb} {who}")
    table.add_column("stage")
    audit = audit or {}
    later = (audit.get("dormancy") or {}).get("models", {})
    shown = len(COLUMNS) - bool(later)  # the distance makes room
    titles = [title for title, _ in COLUMNS[:shown]]
    for title in [titles[0], *(["later"] if later else []), *titles[1:]]:
        table.add_column(title, justify="right")
    stages = dict(summary["stages"])
    if (audit.get("truth") or {}).get(RETRAINED):
        auc = audit["membership"][RETRAINED]["mean"].get("confidence", {}).get("auc")
        stages[RETRAINED] = {**audit["truth"][RETRAINED], "mia_auc": auc}
    for stage, measured in stages.items():
        cells = _cells(measured)[:shown]
        cells[1:1] = [_cell((later.get(stage) or {}).get("worst"))] if later else []
        table.add_row(stage, *cells)
    return table


def task_table(summary: Mapping[str, Any], audit: Mapping[str, Any] | None = None) -> Table | None:
    """Return the numbers by which the run's task is usually judged, a row each; None for a task that has none."""
    found = rows(summary, audit)
    if not found:
        return None
    table = Table(title=f"Task {task_name(summary)}")
    table.add_column("measure")
    table.add_column("clients")
    for stage in found[0].values:
        table.add_column(stage, justify="right")
    for row in found:
        values = (finite(value) for value in row.values.values())
        cells = ("–" if value is None else row.shown.form(value) for value in values)
        table.add_row(row.shown.title, SIDES[row.side][0], *cells)
    return table


def comparison_table(
    summaries: Mapping[str, Mapping[str, Any]], paper: Mapping[str, Mapping[str, Cell]] | None = None
) -> Table:
    """Return every stage of every run, a line each; what all run paths begin with is left out of their names.

    ``paper`` has the paper's cells by run and stage; where it has any, they stand in columns of their own.
    """
    paper = paper or {}
    paths = {name: Path(name).absolute() for name in summaries}
    begin = os.path.commonpath([path.parent for path in paths.values()])
    table = Table(title="Runs side by side")
    table.add_column("run", overflow="fold")
    table.add_column("stage", no_wrap=True)
    columns = [(title, key) for title, key in COLUMNS if key not in ("forget_acc", "mia_auc")]
    for title, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    beside = ["asr", "r_acc"] if any(paper.values()) else []
    for title in ("ASR", "R-Acc")[: len(beside)]:
        table.add_column(f"paper\n{title}", justify="right", no_wrap=True)
    for name, summary in summaries.items():
        short = str(paths[name].relative_to(begin))
        for k, (stage, measured) in enumerate(summary["stages"].items()):
            cells = [_cell(measured[key]) for _, key in columns]
            printed: Mapping[str, Any] = paper.get(name, {}).get(stage) or {}
            cells += [_cell(printed.get(key)) for key in beside]
            table.add_row(short if k == 0 else "", stage, *cells, end_section=k + 1 == len(summary["stages"]))
    return table


def show(*parts: RenderableType) -> None:
    """Print tables and text on standard output."""
    for part in parts:
        Console().print(part)


def _cells(measured: Mapping[str, Any]) -> list[str]:
    cells = [_cell(measured[key]) for _, key in COLUMNS]
    if measured["r_acc_std"] is not None:
        cells[2] += f" ({measured['r_acc_std']:.3f})"
    return cells


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
