"""Local training: a model down, a trained model up."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import descend, logits_of, randomness
from fupareto.federation.questions.base import Answer, Question, flaw_of_vector
from fupareto.federation.request import Splits
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class Trained(Answer):
    """A local model (or last layer) and the number of samples behind it."""

    w: Tensor
    size: int


class TrainingQuestion(Question, abstract=True):
    """A question that is answered by a local model."""

    answered_by: ClassVar[type[Answer]] = Trained

    def flaw(self, answer: Trained, size: int) -> str | None:
        """Return what is wrong with the model, or with the number of samples."""
        if reason := flaw_of_vector(answer.w, size):
            return reason
        return None if 1 <= answer.size < np.inf else f"trained on {answer.size} samples"


@dataclass(frozen=True)
class Train(TrainingQuestion):
    """Train locally from ``w`` by plain SGD; ``seed`` feeds dropout, batches keep their order.

    ``reference`` is another model, for losses that look at its logits too.
    """

    w: Tensor
    loss: Loss
    lr: float
    epochs: int
    batch_size: int
    seed: int
    reference: Tensor | None = None

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Trained:
        """Return the local model after the epochs."""
        x, y = splits["train"]
        reference = logits_of(self.reference, module, x)
        parameters.write(module, self.w)
        with randomness(module, "train", self.seed, client):
            descend(module, x, y, reference, self)
        return Trained(w=parameters.read(module), size=len(y))
