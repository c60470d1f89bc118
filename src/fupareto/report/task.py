"""The summary numbers of a run's task, such as AUC or perplexity, as rows for the terminal and the page."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fupareto.report.markup import decimal, percent, score
from fupareto.vocabulary import RETRAINED

SIDES = {  # of a stage's measures: in a table, and in words
    "retained": ("retained", "test data of the retained clients"),
    "forget": ("forget", "data to be forgotten"),
    "mark": ("mark", "held-out inputs with the mark"),
}


@dataclass(frozen=True)
class Shown:
    """How a task's number is shown."""

    title: str
    form: Callable[[float], str] = decimal


KNOWN = {
    "auc": Shown("AUC", score),
    "mae": Shown("mean absolute error"),
    "median_error": Shown("median absolute error"),
    "r2": Shown("R²", score),
    "perplexity": Shown("perplexity"),
    "token_accuracy": Shown("token accuracy", percent),
    "mean_iou": Shown("mean IoU", score),
    "pixel_accuracy": Shown("pixel accuracy", percent),
}


@dataclass(frozen=True)
class Row:
    """One number of the task on one side, in every model.

    Attributes:
        name: Name in the summary.
        side: Side in the summary, a key of :data:`SIDES`.
        values: Values by stage; the retrained model is among them where it was audited.
    """

    name: str
    side: str
    values: dict[str, Any]

    @property
    def shown(self) -> Shown:
        """Return how the number is shown; a task of the user's has names of its own."""
        return KNOWN.get(self.name) or Shown(self.name)


def task_name(summary: Mapping[str, Any]) -> str:
    """Return the name of a run's task."""
    task = summary.get("task")
    return str(task.get("name", "")) if isinstance(task, Mapping) else "classes"


def rows(summary: Mapping[str, Any], audit: Mapping[str, Any] | None = None) -> list[Row]:
    """Return the task's numbers of a run; none for classes, whose accuracy other tables have."""
    models = dict(summary.get("stages") or {})
    retrained = ((audit or {}).get("truth") or {}).get(RETRAINED)
    models |= {RETRAINED: retrained} if retrained else {}
    found = {stage: model.get("measures") or {} for stage, model in models.items() if model}
    return [
        Row(name, side, {stage: (held.get(side) or {}).get(name) for stage, held in found.items()})
        for side in SIDES
        for name in dict.fromkeys(_names(found, side))
    ]


def _names(found: Mapping[str, Mapping[str, Any]], side: str) -> Iterator[str]:
    for held in found.values():
        yield from held.get(side) or ()
