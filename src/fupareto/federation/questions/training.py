"""Questions for local training."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import descend, logits_of, randomness
from fupareto.federation.questions.base import Answer, Question, flaw_of_vector
from fupareto.federation.questions.schema import Count
from fupareto.federation.request import Splits
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class Trained(Answer):
    """A local model.

    Attributes:
        w: The model, or a last layer, flat.
        size: Number of training samples.
    """

    w: Tensor
    size: Count


class TrainingQuestion(Question, abstract=True):
    """Base class of questions that are answered by a local model."""

    answered_by: ClassVar[type[Answer]] = Trained

    def flaw(self, answer: Trained, size: int) -> str | None:
        """Return why the model or the number of samples cannot be used, or None."""
        if reason := flaw_of_vector(answer.w, size):
            return reason
        return None if answer.size >= 1 else f"trained on {answer.size} samples"


@dataclass(frozen=True)
class Train(TrainingQuestion):
    """Train locally by plain SGD over consecutive batches, without shuffling.

    Attributes:
        w: The model to train from (parameters,).
        loss: Loss to minimise.
        lr: Learning rate.
        epochs: Local epochs.
        batch_size: Batch size.
        seed: Seed of random operations such as dropout.
        reference: Reference model, for losses that use one.
    """

    w: Tensor
    loss: Loss
    lr: float
    epochs: int
    batch_size: int
    seed: int
    reference: Tensor | None = None

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Trained:
        """Return the trained local model."""
        x, y = splits["train"]
        reference = logits_of(self.reference, module, x)
        parameters.write(module, self.w)
        with randomness(module, "train", self.seed, client):
            descend(module, x, y, reference, self)
        return Trained(w=parameters.read(module), size=len(y))
