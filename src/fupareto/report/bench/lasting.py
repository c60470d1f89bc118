"""Table of a bench's lasting forgetting: every model now, after further training, and on the way to retraining."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from fupareto.report.bench.aggregate import INITIAL, Results, answers, known_by
from fupareto.report.markup import count, measured
from fupareto.report.sheet import Sheet
from fupareto.vocabulary import RETRAINED, SECOND

NONE = "–"
WAYS = ("later", "relearning", "loss", "divergence")
BRIEF = (0, 1, 2, 3, 5, 8, 12)  # model, ASR, later, R-Acc, relearning, its way, rounds
MEGABYTE = 1e6


def lasting(results: Results) -> list[Sheet]:
    """Return a sheet per setting; none where no audit says more than the run itself."""
    return [sheet for setting in results["settings"] if (sheet := _sheet(results, setting["name"]))]


def narrow(sheet: Sheet) -> Sheet:
    """Return the sheet with the columns that fit a terminal."""

    def chosen(cells: Sequence[Any]) -> list[Any]:
        return [cells[k] for k in BRIEF]

    return replace(sheet, columns=chosen(sheet.columns), rows=[chosen(row) for row in sheet.rows])


def _sheet(results: Results, setting: str) -> Sheet | None:
    found = [cell for cell in answers(results, setting) if _told(cell)]
    if not found:
        return None
    known = known_by(results, setting)
    first = list({cell["seed"]: cell for cell in reversed(found)}.values())  # one cell per seed: w0 is the same for all
    rows = [[INITIAL, *_row([_initial(cell) for cell in first], known)]]
    retrained = [
        {**_model(cell, RETRAINED), **_cost(cell["lasting"].get("retraining", {}))}
        for cell in first
        if RETRAINED in cell["lasting"]["models"]
    ]
    rows += [[RETRAINED, *_row(retrained, known)]] if retrained else []
    for label in (method["label"] for method in results["methods"]):
        mine = [_kept(cell) for cell in found if cell["label"] == label]
        gap = "" if len(mine) == len(first) else f" ({len(mine)} of {len(first)} seeds)"
        rows += [[label + gap, *_row(mine, known)]] if mine else []
    name = "ASR" if known == "asr" else "forget acc."
    heads = ["model", name, "later", "R-Acc", "worst client", "relearning", "loss AUC"]
    heads += [*(f"way: {way}" for way in WAYS), "apart", "rounds", "MB"]
    further = sorted({cell["lasting"]["rounds"] for cell in found if cell["lasting"].get("rounds")})
    about = [
        f"Later: the worst {name} within {'/'.join(map(str, further)) or 'no'} further rounds of training among the "
        "retained clients. Relearning: the mean over slow rounds of training on the forgotten data.",
        "Way: how much of the way from w0 (0 %) to a retrained model (100 %) was gone. Apart: how far outputs on the "
        "forgotten data are from a retrained model's, over how far those of two retrained models are from each other. "
        "MB: sent by and to all clients. Means over seeds; a way is defined only where w0 and a retrained model differ "
        "beyond chance, and (1 of 3) says on how many seeds.",
    ]
    return Sheet(f"{results['title']}: lasting, {setting}", [("", head) for head in heads], 1, rows, about)


def _told(cell: Mapping[str, Any]) -> bool:
    models = (cell.get("lasting") or {}).get("models") or {}
    return any(measured(own.get(key)) is not None for own in models.values() for key in ("later", "relearning"))


def _initial(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {**cell["stages"]["initial"], **_model(cell, "initial")}


def _kept(cell: Mapping[str, Any]) -> dict[str, Any]:
    way = {f"way {name}": value for name, value in cell["lasting"]["way"].items()}
    return {**cell["stages"][cell["final"]], **_model(cell, cell["final"]), **way, **_cost(cell["cost"])}


def _cost(spent: Mapping[str, Any]) -> dict[str, float | None]:
    up, down = (measured(spent.get(key)) for key in ("bytes_up", "bytes_down"))
    size = None if up is None or down is None else (up + down) / MEGABYTE
    return {"rounds": measured(spent.get("rounds")), "MB": size}


def _model(cell: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """Return what audits say of a model, with its divergence over that between two retrained models."""
    models = cell["lasting"]["models"]
    own, spread = (measured(models.get(name, {}).get("divergence")) for name in (stage, SECOND))
    return {**models[stage], "apart": own / spread if own is not None and spread else None}


def _row(models: list[dict[str, Any]], known: str) -> list[str]:
    shares = [
        _three(own.get(key) for own in models) for key in (known, "later", "r_acc", "r_acc_min", "relearning", "loss")
    ]
    ways = [_percent(own.get(f"way {way}") for own in models) for way in WAYS]
    apart, rounds, size = (_mean(own.get(key) for own in models) for key in ("apart", "rounds", "MB"))
    costs = [NONE if cost is None else count(cost) for cost in (rounds, size)]
    return [*shares, *ways, NONE if apart is None else f"{apart:.1f} ×", *costs]


def _mean(values: Iterable[object]) -> float | None:
    known = [value for v in values if (value := measured(v)) is not None]
    return fmean(known) if known else None


def _three(values: Iterable[object]) -> str:
    mean = _mean(values)
    return NONE if mean is None else f"{mean:.3f}"


def _percent(values: Iterable[object]) -> str:
    """Return the mean as a percentage, with the number of seeds that it is over if others have no such value."""
    every = [measured(value) for value in values]
    known = [value for value in every if value is not None]
    if not known:
        return NONE
    return f"{100 * fmean(known):.0f} %" + ("" if len(known) == len(every) else f" ({len(known)} of {len(every)})")
