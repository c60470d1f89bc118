"""Question for the sums from which a ridge head is computed: features times features, and features times targets."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import features_of
from fupareto.federation.questions.base import FORWARD, NUMBERS, Answer, Question
from fupareto.federation.request import Splits


@dataclass(frozen=True)
class Summed(Answer):
    """Sums over a client's training samples.

    Attributes:
        gram: Sum of the outer products of features, with a 1 appended (features + 1, features + 1), float64.
        moments: Sum of features times one-hot labels (features + 1, classes), float64.
    """

    gram: Tensor
    moments: Tensor


@dataclass(frozen=True)
class Sums(Question):
    """Return the sums of a client's training samples over the features of a model.

    Attributes:
        w: The model, whose last dense layer is not used (parameters,).
        features: Inputs of the last dense layer.
        classes: Its outputs.
    """

    answered_by: ClassVar[type[Answer]] = Summed

    w: Tensor
    features: int
    classes: int

    @property
    def passes(self) -> float:
        """One pass forward."""
        return FORWARD

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Summed:
        """Return the sums."""
        x, y = splits["train"]
        parameters.write(module, self.w)
        module.eval()
        inputs = features_of(module, x).double()
        inputs = torch.cat([inputs, torch.ones(len(inputs), 1, dtype=inputs.dtype, device=inputs.device)], 1)
        return Summed(inputs.T @ inputs, inputs.T @ F.one_hot(y, self.classes).double())

    def flaw(self, answer: Summed, size: int) -> str | None:
        """Return why the sums cannot be used, or None."""
        wide = self.features + 1
        shapes = tuple(answer.gram.shape), tuple(answer.moments.shape)
        if shapes != ((wide, wide), (wide, self.classes)):
            return f"answered with sums of shapes {shapes[0]} and {shapes[1]}"
        if not all(bool(torch.isfinite(t).all()) for t in (answer.gram, answer.moments)):
            return f"{NUMBERS} that are not finite"
        return None
