"""Results that the paper reports: cells of its tables by table, row, column and stage.

A bench file names cells in the paper's own terms; case and punctuation are ignored.

    paper = "table1"                              of the bench: "table1" or "ablation"
    paper = { dataset = "FMNIST", CN = 5 }        of a setting: the column; CN is the number of forgotten clients
    paper = "FedOSD"                              of a method: the row

Rows of ``table1``: Retraining, FedEraser, FUPGA, FedEditor, MoDe, FedAU, FUGAS, FedOSD, and FUPareto with the breadth
of its line search, as in "FUPareto s=3". Its columns: FMNIST, CIFAR-100 or GTSRB with CN 1 or 5, among 20 clients.
Rows of ``ablation``: FUPareto and M1 to M8. Its columns: FMNIST, CIFAR-10 or CIFAR-100, 3 of 10 clients forgotten.
The row of the initial model, w0, is found without being named. The paper does not say after which stage its ablation
was measured, so its numbers are reported for both stages.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypedDict

from fupareto.errors import UserError

INITIAL = "w0"
STAGES = {  # our stage -> stages in paper.json
    "initial": ("initial",),
    "unlearned": ("unlearn", "unlearn_or_final_unspecified"),
    "recovered": ("post", "unlearn_or_final_unspecified"),
}
DATASETS = {"fashion-mnist": "FMNIST", "cifar100": "CIFAR-100", "gtsrb": "GTSRB"}  # our name -> name in Table I
METHODS = {  # our name -> row of Table I
    "retrain": "Retraining",
    "federaser": "FedEraser",
    "fupga": "FUPGA",
    "fededitor": "FedEditor",
    "mode": "MoDe",
    "fedau": "FedAU",
    "fugas": "FUGAS",
    "fedosd": "FedOSD",
    "fupareto": "FUPareto s={s}",
    "fupareto:guard": "FUPareto s={s}",
    "fupareto:paper": "FUPareto s={s}",
}


class Cell(TypedDict):
    """Reported results of one method on one data set, as fractions.

    Attributes:
        asr: Attack success rate.
        r_acc: Mean accuracy of the retained clients.
        r_acc_std: Standard deviation of that accuracy.
    """

    asr: float
    r_acc: float
    r_acc_std: float


def citation() -> str:
    """Return the citation of the paper."""
    return str(_all()["citation"])


def cell(table: str, row: str, column: Mapping[str, Any], stage: str) -> Cell | None:
    """Return a cell of the paper, or None where it reports none; ``stage`` is initial, unlearned or recovered."""
    found = [r for r in _rows(table, column) if _plain(r["method"]) == _plain(row) and r["stage"] in STAGES[stage]]
    if len(found) != 1:
        return None
    return {"asr": found[0]["ASR"], "r_acc": found[0]["R_Acc_mean"], "r_acc_std": found[0]["R_Acc_std"]}


def rows(table: str) -> list[dict[str, Any]]:
    """Return every row of a table of the paper, as paper.json has it."""
    found: list[dict[str, Any]] = _all()[table]["rows"]
    return found


def check(table: str, rows: Iterable[str], columns: Iterable[Mapping[str, Any]]) -> None:
    """Refuse rows and columns that the table does not have; empty ones are skipped: the paper does not report them."""
    rows, columns = [r for r in rows if r], [c for c in columns if c]
    if not table:
        if rows or columns:
            raise UserError(
                'settings or methods have a key "paper", but the bench does not name a table of the paper: add '
                'paper = "table1" at the top of the file'
            )
        return
    known = dict.fromkeys(r["method"] for r in _all()[table]["rows"])
    for row in rows:
        if _plain(row) not in map(_plain, known):
            raise UserError(f"the paper's {table} has no row {row!r}; it has {', '.join(known)}")
    for column in columns:
        if cell(table, INITIAL, column, "initial") is None:
            existing = [{k: r[k] for k in ("dataset", "CN")} for r in _all()[table]["rows"] if r["method"] == INITIAL]
            raise UserError(f"the paper's {table} has no column {dict(column)}; it has {', '.join(map(str, existing))}")


def beside(summary: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Cell]:
    """Return the cells of Table I for the stages of a run; empty where the run's setting is not one of the table's."""
    first = summary["stages"].get("initial") or {}
    dataset = DATASETS.get(summary["dataset"])
    if dataset is None or len(summary.get("clients", ())) != 20 or first.get("asr") is None:
        return {}
    column = {"dataset": dataset, "CN": len(summary["forget"])}
    row = METHODS.get(summary["method"], "").format(s=options.get("s"))
    found = {s: cell("table1", INITIAL if s == "initial" else row, column, s) for s in summary["stages"] if s in STAGES}
    return {stage: printed for stage, printed in found.items() if printed is not None}


def _rows(table: str, column: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a column of a table."""
    if not table or not column:
        return []
    rows: list[dict[str, Any]] = _all()[table]["rows"]
    return [r for r in rows if all(_plain(r.get(key)) == _plain(value) for key, value in column.items())]


def _plain(text: object) -> str:
    """Return the lower-case letters and digits of a name, so that "FUPareto s=3" equals "FUPareto (s=3)"."""
    return "".join(c for c in str(text).lower() if c.isalnum())


@cache
def _all() -> dict[str, Any]:
    """Return the content of paper.json."""
    found: dict[str, Any] = json.loads(files("fupareto").joinpath("paper.json").read_text(encoding="utf-8"))
    return found
