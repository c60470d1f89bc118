"""Tasks of choosing: one of several classes, yes or no, several labels at once; and the names of all tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fupareto.errors import UserError, did_you_mean
from fupareto.tasks import criteria, measures
from fupareto.tasks.base import Decisions, Task, flat, whole
from fupareto.tasks.code import imported
from fupareto.tasks.numbers import Numbers
from fupareto.tasks.tokens import Tokens


@dataclass(frozen=True)
class Classes(Task):
    """One of several classes per sample: outputs (samples, classes), targets (samples,). The default."""

    name: ClassVar[str] = "classes"

    def prepared(self, targets: Tensor) -> Tensor:
        """Return the labels as a vector of whole numbers."""
        targets = flat(targets)
        if targets.dim() != 1:
            raise ValueError(
                f"labels must be a vector of integers, not {targets.dtype} of shape {tuple(targets.shape)}; for "
                'several labels per sample say task="labels", for one label in columns give y.argmax(1)'
            )
        return whole(targets)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs that are not one number per class, and labels beyond them."""
        if outputs.dim() != 2 or len(outputs) != len(targets):
            raise ValueError(
                f"the model's outputs have shape {tuple(outputs.shape)} for {len(targets)} samples; the last layer "
                "must give (batch, classes)"
            )
        classes = outputs.shape[1]
        if classes < 2:
            raise ValueError('the model has one output; for yes or no, say task="binary", for a number task="numbers"')
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= classes:
            raise ValueError(
                f"labels from {low} to {high}, but the model has {classes} outputs, for labels 0 to {classes - 1}"
            )

    def decisions(self, outputs: Tensor, targets: Tensor) -> Decisions:
        """Return one decision per sample."""
        return Decisions(outputs, targets)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy, eq. (1)."""
        return F.cross_entropy(outputs, targets, reduction="none")

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the class with the largest output."""
        return outputs.argmax(1)

    def tally(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Return the number of right answers, and the sum of the losses."""
        right = int((outputs.argmax(1) == targets).sum())
        if self.criterion is not None:
            return right, float(self.judged(outputs, targets).double().sum())
        return right, float(F.cross_entropy(outputs, targets, reduction="sum"))


@dataclass(frozen=True)
class Binary(Task):
    """Yes or no, by one output whose sign decides: outputs (samples,) or (samples, 1), targets 0 or 1 in any type."""

    name: ClassVar[str] = "binary"

    def prepared(self, targets: Tensor) -> Tensor:
        """Return the labels as a float vector of zeros and ones."""
        targets = flat(targets)
        if targets.dim() != 1 or not bool(((targets == 0) | (targets == 1)).all()):
            raise ValueError('labels of task "binary" must be 0 or 1, one per sample')
        return targets.to(torch.float32)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs that are not one number per sample."""
        _one_each(outputs, len(targets), 'task "binary"', '; for one output per class, say task="classes"')

    def decisions(self, outputs: Tensor, targets: Tensor) -> Decisions:
        """Return a choice between no, with the logit 0, and yes, with the output as its logit."""
        return Decisions(*_yes_no(outputs.reshape(-1), targets))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the binary cross-entropy."""
        return F.binary_cross_entropy_with_logits(outputs.reshape(-1), targets.to(outputs.dtype), reduction="none")

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1 where the output is positive."""
        return (outputs.reshape(-1) > 0).to(targets.dtype)

    def evidence(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return outputs and labels."""
        return {"outputs": outputs.reshape(-1), "targets": targets}

    def measures(self, evidence: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the AUC."""
        return {"auc": measures.auc(evidence["outputs"], evidence["targets"])}


@dataclass(frozen=True)
class Labels(Task):
    """Several labels at once, each yes or no: outputs and targets (samples, labels). Right is a share of the labels."""

    name: ClassVar[str] = "labels"

    def prepared(self, targets: Tensor) -> Tensor:
        """Return the labels as floats of zeros and ones."""
        if targets.dim() != 2 or not bool(((targets == 0) | (targets == 1)).all()):
            raise ValueError(
                f'labels of task "labels" must be 0 or 1, of shape (samples, labels), not {tuple(targets.shape)}'
            )
        return targets.to(torch.float32)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs of another shape than the labels."""
        if outputs.shape != targets.shape:
            raise ValueError(
                f"the model's outputs have shape {tuple(outputs.shape)}, and the labels {tuple(targets.shape)}; the "
                "last layer must give one output per label"
            )

    def decisions(self, outputs: Tensor, targets: Tensor) -> Decisions:
        """Return a choice between no and yes for every label of every sample."""
        owner = torch.arange(len(targets), device=targets.device).repeat_interleave(targets.shape[1])
        return Decisions(*_yes_no(outputs.reshape(-1), targets.reshape(-1)), owner, len(targets))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean binary cross-entropy over the labels."""
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none").mean(1)

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return 1 where the output is positive."""
        return (outputs > 0).to(targets.dtype)

    def evidence(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return outputs and labels."""
        return {"outputs": outputs, "targets": targets}

    def measures(self, evidence: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the mean AUC over labels that occur and are absent at least once."""
        return {"auc": measures.mean_auc(evidence["outputs"], evidence["targets"])}


TASKS: dict[str, type[Task]] = {kind.name: kind for kind in (Classes, Binary, Labels, Numbers, Tokens)}


def task_of(given: Any) -> Task:
    """Return the task that a name, plain values, a class or a task stands for; None is :class:`Classes`.

    Args:
        given: Such as ``"binary"``, ``{"name": "numbers", "tolerance": 0.5}``, ``"package.module:Class"``. Code that it
            names is imported.
    """
    if given is None:
        return Classes()
    if isinstance(given, Task):
        return given
    if isinstance(given, type) and issubclass(given, Task):
        return given()
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise UserError(f"task must be one of {', '.join(TASKS)}, package.module:Class, or a Task, not {given!r}")
    name = given["name"]
    try:
        task = _kind(name)(**{key: value for key, value in given.items() if key != "name"})
    except (TypeError, ValueError) as error:
        raise UserError(f"task '{name}': {error}") from error
    if task.criterion is not None:
        criteria.function_of(task.criterion)
    return task


def _kind(name: str) -> type[Task]:
    """Return the class of a task: a built-in one, or the user's."""
    if name in TASKS:
        return TASKS[name]
    if ":" not in name:
        hint = did_you_mean(name, TASKS)
        raise UserError(f"task '{name}' is unknown; there are {', '.join(TASKS)}, or package.module:Class{hint}")
    found = imported(name, "task")
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise UserError(f"task '{name}' must be a class derived from {Task.__module__}.{Task.__qualname__}")
    return found


def _yes_no(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (decisions, 2) of no and yes, and the labels."""
    return torch.stack([torch.zeros_like(outputs), outputs], 1), targets.to(torch.int64)


def _one_each(outputs: Tensor, samples: int, what: str, hint: str = "") -> None:
    if tuple(outputs.shape) not in ((samples,), (samples, 1)):
        raise ValueError(
            f"the model's outputs have shape {tuple(outputs.shape)} for {samples} samples; {what} needs one output per "
            f"sample{hint}"
        )
