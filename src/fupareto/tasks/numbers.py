"""Regression: outputs that are numbers, right within a tolerance."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fupareto.tasks import measures, signals
from fupareto.tasks.base import Decisions, Task
from fupareto.tasks.trees import Tree

LOSSES: dict[str, Callable[..., Tensor]] = {"squared": F.mse_loss, "absolute": F.l1_loss, "huber": F.huber_loss}


@dataclass(frozen=True)
class Numbers(Task):
    """One or several numbers per sample: outputs (samples,), (samples, 1) or (samples, numbers), targets alike.

    A number is right if its error is below the tolerance. Its margin is 1 - error / tolerance, so that every forgetting
    loss follows from the choice between right, with the margin as its logit, and wrong, with the logit 0. A tolerance
    that is not given is twice the median error of the initial model on held-out data, within which about four in five
    of normally distributed errors lie; before there is a trained model, half the standard deviation of a client's
    targets.

    Attributes:
        tolerance: Error up to which a number is right.
        kind: Loss that is minimised: "squared", "absolute" or "huber" error.
    """

    name: ClassVar[str] = "numbers"

    tolerance: float | None = None
    kind: str = "squared"

    def __post_init__(self) -> None:
        """Raise ValueError for a tolerance or a kind that cannot be."""
        given = self.tolerance
        if given is not None and not (isinstance(given, int | float) and math.isfinite(given) and given > 0):
            raise ValueError(f"tolerance must be a number above 0, not {given!r}")
        if self.kind not in LOSSES:
            raise ValueError(f"kind must be one of {', '.join(LOSSES)}, not {self.kind!r}")

    def prepared(self, targets: Tensor) -> Tensor:
        """Return the targets as (samples, numbers)."""
        if targets.dim() not in (1, 2) or targets.dtype.is_complex:
            raise ValueError(f"targets must be numbers of shape (samples,) or (samples, k), not {tuple(targets.shape)}")
        found = targets.to(torch.float32)
        if not bool(torch.isfinite(found).all()):
            raise ValueError("targets contain NaN or infinity; remove or replace them")
        return found[:, None] if found.dim() == 1 else found

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs of another number per sample."""
        if outputs.reshape(len(outputs), -1).shape != targets.shape:
            raise ValueError(
                f"the model's outputs have shape {tuple(outputs.shape)}, and the targets {tuple(targets.shape)}; the "
                "last layer must give one output per number"
            )

    def settled(self, inputs: Tree, targets: Tensor) -> "Numbers":
        """Return the task with half the standard deviation of the targets as tolerance, where none is given."""
        if self.tolerance is not None:
            return self
        spread = float(targets.double().std()) / 2 if len(targets) > 1 else 0.0
        return replace(self, tolerance=spread if spread > 0 else 1.0)

    @property
    def open(self) -> bool:
        """Return whether the tolerance is not given."""
        return self.tolerance is None

    def calibrate(self, measured: Sequence[Mapping[str, float]]) -> "Numbers":
        """Return the task with twice the median over clients of their median errors as tolerance."""
        errors = sorted(counts["median_error"] for counts in measured if "median_error" in counts)
        middle = 2 * errors[len(errors) // 2] if errors else 0.0
        return replace(self, tolerance=middle) if middle > 0 else self

    def decisions(self, outputs: Tensor, targets: Tensor) -> Decisions:
        """Return the choice between wrong, with the logit 0, and right, with the margin as its logit."""
        margin = 1 - (_shaped(outputs) - targets).abs() / (self.tolerance or 1.0)
        logits = torch.stack([torch.zeros_like(margin), margin], -1).reshape(-1, 2)
        right = torch.ones(len(logits), dtype=torch.int64, device=logits.device)
        if targets.shape[1] == 1:
            return Decisions(logits, right)
        owner = torch.arange(len(targets), device=targets.device).repeat_interleave(targets.shape[1])
        return Decisions(logits, right, owner, len(targets))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the error in the measure of ``kind``, the mean over a sample's numbers."""
        return LOSSES[self.kind](_shaped(outputs), targets.to(outputs.dtype), reduction="none").mean(1)

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the outputs."""
        return _shaped(outputs).to(targets.dtype)

    def evidence(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return outputs and targets."""
        return {"outputs": _shaped(outputs), "targets": targets}

    def measures(self, evidence: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the mean and the median absolute error, and R²."""
        return measures.errors(evidence["outputs"], evidence["targets"])

    def signals(self, outputs: Tensor, targets: Tensor) -> signals.Signals:
        """Return the signals of the choice between right and wrong, with the sample's own loss and raw outputs.

        Outputs are no probabilities: their entropy is 0.
        """
        seen = super().signals(outputs, targets)
        numbers = _shaped(outputs).detach().double().cpu().numpy()
        return signals.Signals(
            loss=self.objective(outputs.double(), targets.double()).detach().cpu().numpy(),
            margin=seen.margin,
            entropy=np.zeros(len(targets)),
            scaled=seen.scaled,
            outputs=-np.sort(-numbers, axis=1)[:, : signals.FIRST],
        )

    def apart(self, ours: Tensor, theirs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the squared Hellinger distance of two normal distributions around the outputs, and who is right.

        The distributions have the tolerance as standard deviation; like the divergence of classes, the distance is
        between 0 and 1. Two answers differ if they are further apart than the tolerance.
        """
        distance = (_shaped(ours).double() - _shaped(theirs).double()) / (self.tolerance or 1.0)
        return (1 - torch.exp(-distance.square() / 8)).mean(1), (distance.abs() > 1).double().mean(1)


def _shaped(outputs: Tensor) -> Tensor:
    return outputs.reshape(len(outputs), -1)
