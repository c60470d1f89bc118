"""A label per position: the next token of a text, a tag per token, a class per pixel."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fupareto.tasks import criteria, measures
from fupareto.tasks.base import Decisions, Task, whole
from fupareto.tasks.trees import Tree, leaves

IGNORED = -100  # target of positions that do not count, as in torch and Hugging Face


@dataclass(frozen=True)
class Tokens(Task):
    """A class per position: outputs (samples, positions…, classes) or (samples, classes, positions…).

    Targets are (samples, positions…); those equal to -100 or to ``padding`` do not count. Where the targets are the
    inputs themselves, as in a causal language model, position k is judged by the token at k + 1. A sample's loss,
    margin and share of right answers are means over its positions.

    Attributes:
        shift: Whether the target of a position is the next token; None: if the targets equal the inputs.
        padding: Another target that does not count.
    """

    name: ClassVar[str] = "tokens"

    shift: bool | None = None
    padding: int = IGNORED

    def prepared(self, targets: Tensor) -> Tensor:
        """Return the targets as whole numbers."""
        if targets.dim() < 2:
            raise ValueError(
                f'targets of task "tokens" must be (samples, positions…), not {tuple(targets.shape)}; for one label '
                'per sample, say task="classes"'
            )
        return whole(targets)

    def settled(self, inputs: Tree, targets: Tensor) -> "Tokens":
        """Return the task with ``shift`` decided: on, if some input equals the targets wherever they count."""
        if self.shift is not None:
            return self
        counted = self._counted(targets)
        alike = (
            leaf.shape == targets.shape and not leaf.is_floating_point() and bool((leaf == targets)[counted].all())
            for leaf in leaves(inputs)
        )
        return replace(self, shift=any(alike))

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs without a number per position and class, and labels beyond the classes."""
        logits, labels = self._aligned(outputs, targets)
        counted = labels[self._counted(labels)]
        if not counted.numel():
            return
        low, high, classes = int(counted.min()), int(counted.max()), logits.shape[-1]
        if low < 0 or high >= classes:
            raise ValueError(f"labels from {low} to {high}, but the model has {classes} outputs per position")

    def decisions(self, outputs: Tensor, targets: Tensor) -> Decisions:
        """Return one decision per position that counts."""
        logits, labels = self._aligned(outputs, targets)
        logits, labels = logits.flatten(1, -2), labels.flatten(1)
        counted = self._counted(labels)
        owner = counted.nonzero()[:, 0]
        return Decisions(logits[counted], labels[counted], owner, len(targets))

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the user's criterion, the mean over a sample's positions; it is given (positions, classes)."""
        found = self.decisions(outputs, targets)
        return found.mean(criteria.per_sample(self.criterion, found.logits, found.labels))

    def answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the likeliest class of every position that counts."""
        logits, labels = self._aligned(outputs, targets)
        found = torch.where(self._counted(labels), logits.argmax(-1), torch.full_like(labels, IGNORED))
        if not self.shift:
            return found
        return torch.cat([torch.full_like(targets[:, :1], IGNORED), found], 1)

    def evidence(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return sums over positions: losses, right answers, count; for pixels also intersections and unions."""
        found = self.decisions(outputs, targets)
        right = found.logits.argmax(1)
        loss = F.cross_entropy(found.logits, found.labels, reduction="none").double().sum()
        sums = torch.stack([loss, (right == found.labels).double().sum(), loss.new_tensor(float(len(right)))])
        if targets.dim() < 3:
            return {"sums": sums[None]}
        return {"sums": sums[None], "overlap": measures.overlap(right, found.labels, found.logits.shape[1])[None]}

    def measures(self, evidence: Mapping[str, Tensor]) -> dict[str, float]:
        """Return perplexity and next-token (or tag) accuracy; for pixels mean IoU and pixel accuracy."""
        loss, right, count = evidence["sums"].sum(0).tolist()
        if "overlap" in evidence:
            return {"mean_iou": measures.mean_iou(evidence["overlap"].sum(0)), "pixel_accuracy": right / max(count, 1)}
        return {"perplexity": measures.perplexity(loss, count), "token_accuracy": right / max(count, 1)}

    def _counted(self, labels: Tensor) -> Tensor:
        return (labels != IGNORED) & (labels != self.padding)

    def _aligned(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs with the classes last, and targets; of the next position if ``shift``."""
        if outputs.dim() == targets.dim() + 1 and outputs.shape[:-1] == targets.shape:
            logits = outputs
        elif outputs.dim() == targets.dim() + 1 and outputs.shape[:1] + outputs.shape[2:] == targets.shape:
            logits = outputs.movedim(1, -1)
        else:
            raise ValueError(
                f"the model's outputs have shape {tuple(outputs.shape)}, and the targets {tuple(targets.shape)}; "
                "outputs must be (samples, positions, classes)"
            )
        return (logits[:, :-1], targets[:, 1:]) if self.shift else (logits, targets)
