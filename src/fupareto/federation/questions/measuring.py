"""Questions that measure a model on a client's data: counts by split, and outputs per sample for audits."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import batches
from fupareto.federation.questions.base import NUMBERS, Answer, Question
from fupareto.federation.questions.schema import MOST, Measured
from fupareto.federation.request import Splits


@dataclass(frozen=True)
class Evaluated(Answer):
    """Number of samples, correct predictions and mean cross-entropy by split."""

    counts: Measured


@dataclass(frozen=True)
class Evaluate(Question):
    """Count correct predictions on the named splits.

    A client that answers without one of the splits, or on no samples, is missing: it was not measured.

    Attributes:
        w: The model (parameters,).
        splits: Names of splits. ``clean|train`` stands for the first of the two that the client has; a client
            that does not have ``trigger?`` may leave it out.
    """

    answered_by: ClassVar[type[Answer]] = Evaluated

    w: Tensor
    splits: tuple[str, ...]

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Evaluated:
        """Return the counts of every split that the client has."""
        parameters.write(module, self.w)
        module.eval()
        counts = {}
        for names in self.splits:
            name = next((name for name in names.rstrip("?").split("|") if name in splits), None)
            if name is None:
                continue
            x, y = splits[name]
            right, loss = 0, 0.0
            with torch.no_grad():
                for batch_x, batch_y, _ in batches(x, y):
                    logits = module(batch_x)
                    right += int((logits.argmax(1) == batch_y).sum())
                    loss += float(F.cross_entropy(logits, batch_y, reduction="sum"))
            counts[name] = {"samples": len(y), "right": right, "loss": loss / max(len(y), 1)}
        return Evaluated(counts=counts)

    def flaw(self, answer: Evaluated, size: int) -> str | None:
        """Return why the counts cannot be used, or None: every split must have been measured, and no other."""
        asked = {names.rstrip("?"): names for names in self.splits}
        if extra := set(answer.counts) - {name for names in asked for name in names.split("|")}:
            return f"answered with '{min(extra)}', which it was not asked for"
        for names, written in asked.items():
            found = [answer.counts[name] for name in names.split("|") if name in answer.counts]
            if len(found) != 1 and not (written.endswith("?") and not found):
                return f"answered without a measurement of '{names.replace('|', ' or ')}'"
        return next((reason for split, c in answer.counts.items() if (reason := _miscounted(split, c))), None)


def _miscounted(split: str, counts: dict[str, float]) -> str | None:
    """Return why the counts of a split cannot be those of some samples, or None."""
    right, samples = counts["right"], counts["samples"]
    if not (0 <= right <= samples <= MOST) or {type(right), type(samples)} != {int}:
        return f"counted {right} correct predictions in {samples} samples of '{split}'"
    if not samples:
        return f"answered with a measurement of '{split}' on no samples"
    return None if type(counts["loss"]) in (int, float) else f"answered without the loss on '{split}'"


@dataclass(frozen=True)
class Predicted(Answer):
    """Logits and labels, in the order of the client's samples."""

    logits: Tensor  # (samples, classes) float32
    labels: Tensor  # (samples,) int64


@dataclass(frozen=True)
class Predict(Question):
    """Outputs per sample on the first of the named splits that the client has.

    For audits only: membership attacks use the outputs on single samples.

    Attributes:
        w: The model (parameters,).
        splits: Names of splits, in order of preference.
    """

    answered_by: ClassVar[type[Answer]] = Predicted

    w: Tensor
    splits: tuple[str, ...]

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Predicted:
        """Return the logits and labels of the split."""
        found = next((splits[name] for name in self.splits if name in splits), None)
        if found is None:
            raise ValueError(f"the client has no split {' or '.join(self.splits)}")
        parameters.write(module, self.w)
        module.eval()
        with torch.no_grad():
            logits = torch.cat([module(x) for x, _, _ in batches(*found)])
        return Predicted(logits=logits, labels=found[1])

    def flaw(self, answer: Predicted, size: int) -> str | None:
        """Return why the shapes, values or labels cannot be used, or None."""
        logits, labels = answer.logits, answer.labels
        if logits.dim() != 2 or tuple(labels.shape) != (len(logits),) or not len(logits):
            return f"answered with outputs of shape {tuple(logits.shape)} for labels of {tuple(labels.shape)}"
        if logits.shape[1] < 2 or logits.dtype != torch.float32:
            return f"answered with {logits.shape[1]} outputs per sample in {logits.dtype}"
        if not bool(torch.isfinite(logits).all()):
            return f"{NUMBERS} that are not finite"
        if labels.dtype != torch.int64 or not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
            return f"answered with labels that are not classes 0 to {logits.shape[1] - 1}"
        return None
