"""Table of a bench's membership attacks: AUCs, a row per model, a column per forget client."""

from collections.abc import Mapping
from typing import Any

from fupareto.report.bench.aggregate import INITIAL, Results, cells
from fupareto.report.sheet import Sheet

NONE = "–"


def membership(results: Results) -> list[Sheet]:
    """Return a sheet per setting and seed; none where nothing was attacked."""
    found = []
    for setting in results["settings"]:
        for seed in setting["seeds"]:
            if sheet := _sheet(results, setting["name"], seed):
                found.append(sheet)
    return found


def _sheet(results: Results, setting: str, seed: int) -> Sheet | None:
    mine: dict[str, Mapping[str, Any]] = {
        method["label"]: cell
        for method in results["methods"]
        for cell in cells(results, setting, method["label"])
        if cell["seed"] == seed and cell.get("membership")
    }
    if not mine:
        return None
    first = next(iter(mine.values()))
    clients = list(first["membership"]["initial"]["clients"])
    rows = [[INITIAL, "initial", *_aucs(first["membership"]["initial"], clients)]]
    rows += [[label, cell["final"], *_aucs(cell["membership"][cell["final"]], clients)] for label, cell in mine.items()]
    columns = [("", "method"), ("", "model"), *(("", f"client {i}") for i in clients), ("", "mean")]
    about = [
        "AUC of a learned attack on the sorted softmax outputs, with its 95 % interval, on the model that was kept.",
        "0.5 is chance; the attack is trained, so values below it are chance, too.",
    ]
    return Sheet(f"{results['title']}: membership, {setting}, seed {seed}", columns, 2, rows, about)


def _aucs(told: Mapping[str, Any], clients: list[str]) -> list[str]:
    return [_auc(told["clients"].get(i)) for i in clients] + [_auc(told["mean"])]


def _auc(found: Mapping[str, Any] | None) -> str:
    if found is None or found.get("auc") is None:
        return NONE
    low, high = found.get("low"), found.get("high")
    interval = "" if low is None or high is None else f" ({low:.2f}–{high:.2f})"
    return f"{found['auc']:.2f}{interval}"
