"""Questions that measure a model on a client's data: counts by split, and outputs per sample for audits."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import batches
from fupareto.federation.questions.base import NUMBERS, Answer, Question
from fupareto.federation.request import Splits


@dataclass(frozen=True)
class Evaluated(Answer):
    """Number of samples, correct predictions and mean cross-entropy by split."""

    counts: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Evaluate(Question):
    """Count correct predictions on the named splits; splits that a client does not have are left out.

    Attributes:
        w: The model (parameters,).
        splits: Names of splits. ``clean|train`` stands for the first of the two that the client has.
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
            name = next((name for name in names.split("|") if name in splits), None)
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
        """Return why the counts cannot be used, or None."""
        for split, c in answer.counts.items():
            if not 0 <= c["right"] <= c["samples"]:
                return f"counted {c['right']} correct predictions in {c['samples']} samples of '{split}'"
        return None


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
        if not bool(torch.isfinite(logits).all()):
            return f"{NUMBERS} that are not finite"
        if labels.dtype != torch.int64 or not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
            return f"answered with labels that are not classes 0 to {logits.shape[1] - 1}"
        return None
