"""Aggregation of a bench: means over seeds from ``results.json``, with the paper's numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from fupareto import paper
from fupareto.report.markup import measured

KEYS = ("asr", "r_acc", "r_acc_std", "forget_acc", "distance")
COSTS = ("rounds", "passes", "bytes_up", "bytes_down", "storage", "seconds")
INITIAL = "w0"

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A method's model at one stage, over the seeds of a setting."""

    setting: str
    label: str
    stage: str
    seeds: int
    mean: dict[str, float | None]
    spread: dict[str, float | None]  # standard deviation over seeds; None for a single one
    paper: paper.Cell | None


def aggregate(results: Results) -> list[Row]:
    """Return setting by setting the initial model, called w0, then every method at every stage it has."""
    rows = []
    for setting in results["settings"]:
        first = {c["seed"]: c["stages"]["initial"] for c in reversed(answers(results, setting["name"]))}
        rows.append(_row(results, setting, INITIAL, "initial", list(first.values())))
        for method in results["methods"]:
            found = answers(results, setting["name"], method["label"])
            for stage in ("unlearned", "recovered"):
                stages = [c["stages"][stage] for c in found if stage in c["stages"]]
                rows.append(_row(results, setting, method["label"], stage, stages))
    return [row for row in rows if row.seeds]


def known_by(results: Results, setting: str) -> str:
    """Return what says how much is remembered: ASR, or forget accuracy where no trigger was planted."""
    stages = [stage for c in answers(results, setting) for stage in c["stages"].values()]
    return "asr" if not stages or any(measured(stage["asr"]) is not None for stage in stages) else "forget_acc"


def known_as(key: str) -> str:
    """Return the name of a measure of forgetting."""
    return "ASR" if key == "asr" else "Forget accuracy"


def _row(
    results: Results, setting: Mapping[str, Any], label: str, stage: str, stages: Sequence[Mapping[str, Any]]
) -> Row:
    values = {key: _known(s.get(key) for s in stages) for key in KEYS}
    return Row(
        setting=setting["name"],
        label=label,
        stage=stage,
        seeds=len(stages),
        mean={key: fmean(found) if found else None for key, found in values.items()},
        spread={key: stdev(found) if len(found) > 1 else None for key, found in values.items()},
        paper=printed(results, setting, label, stage),
    )


def printed(results: Results, setting: Mapping[str, Any], label: str, stage: str) -> paper.Cell | None:
    """Return the paper's cell of a method at a stage."""
    rows = {INITIAL: INITIAL, **{m["label"]: m["paper"] for m in results["methods"]}}
    return paper.cell(results["paper"], rows[label], setting["paper"], stage)


def answers(results: Results, setting: str, label: str | None = None) -> list[dict[str, Any]]:
    """Return the cells that have a result, of one method or of all."""
    found = [c for c in results["cells"] if c["setting"] == setting and c.get("stages")]
    return [c for c in found if label is None or c["label"] == label]


def cells(results: Results, setting: str, label: str) -> list[dict[str, Any]]:
    """Return every cell of a method, with a result or with a reason for none."""
    return [c for c in results["cells"] if (c["setting"], c["label"]) == (setting, label)]


def spent(results: Results, setting: str, label: str) -> dict[str, float | None]:
    """Return what a method took in a setting, on average over seeds."""
    found = answers(results, setting, label)
    values = {key: _known(c["cost"].get(key) for c in found) for key in COSTS}
    return {key: fmean(known) if known else None for key, known in values.items()}


def until(results: Results, setting: str, label: str) -> dict[str, float | None]:
    """Return means over seeds of what a method took until the ASR was low, and R-Acc then; None if one never was."""
    found = [c.get("until") for c in answers(results, setting, label)]
    values = {key: _known((own or {}).get(key) for own in found) for key in (*COSTS, "r_acc")}
    return {key: fmean(known) if known and len(known) == len(found) else None for key, known in values.items()}


def _known(values: Iterable[object]) -> list[float]:
    return [value for v in values if (value := measured(v)) is not None]
