"""The page's section on the numbers by which a task is usually judged."""

from fupareto.report.markup import Safe, number, tag
from fupareto.report.parts import cell, row, section, table
from fupareto.report.task import SIDES, Row, rows, task_name
from fupareto.report.view import RETRAINED, RunView


def measures(run: RunView) -> Safe | None:
    """The task's own numbers of every model; none for a task that has none beside accuracy."""
    found = rows(run.summary, run.audit)
    if not found:
        return None
    title = f"Task {task_name(run.summary)}"
    explain = "Numbers by which models of this task are usually judged: means over clients."
    numbers = table(["measure", *found[0].values], [_row(one) for one in found], f"{title}, numbers")
    return section("task", title, tag("p", explain, class_="small"), numbers)


def _row(one: Row) -> Safe:
    cells = [cell(number(_key(one, stage), value, one.shown.form)) for stage, value in one.values.items()]
    return row(f"{one.shown.title}, {SIDES[one.side][1]}", *cells)


def _key(one: Row, stage: str) -> str:
    place = f"audit.truth.{stage}" if stage == RETRAINED else f"stages.{stage}"
    return f"{place}.measures.{one.side}.{one.name}"
