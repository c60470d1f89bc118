"""Questions for local training."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import descend, outputs_of, randomness
from fupareto.federation.optimisers import Optimiser
from fupareto.federation.questions.base import FORWARD, Answer, Question, flaw_of_vector
from fupareto.federation.questions.schema import Count
from fupareto.federation.request import Splits
from fupareto.tasks.losses import Loss
from fupareto.tasks.samples import samples_of


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
    epochs: int

    @property
    def passes(self) -> float:
        """The local epochs."""
        return float(self.epochs)

    def flaw(self, answer: Trained, size: int) -> str | None:
        """Return why the model or the number of samples cannot be used, or None."""
        if reason := flaw_of_vector(answer.w, size):
            return reason
        return None if answer.size >= 1 else f"trained on {answer.size} samples"


@dataclass(frozen=True)
class Train(TrainingQuestion):
    """Train locally; by default by plain SGD over consecutive batches, without shuffling.

    Attributes:
        w: The model to train from (parameters,).
        loss: Loss to minimise.
        lr: Learning rate.
        epochs: Local epochs.
        batch_size: Batch size.
        seed: Seed of random operations such as dropout.
        reference: Reference model, for losses that use one.
        optimizer: "sgd", "adam" or "adamw"; its state starts anew with every question.
        momentum: Momentum of SGD.
        weight_decay: Weight decay.
        clip: Largest norm of a batch's gradient; None for any.
        shuffle: Whether the samples are put in a new random order for every epoch.
    """

    w: Tensor
    loss: Loss
    lr: float
    epochs: int
    batch_size: int
    seed: int
    reference: Tensor | None = None
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    shuffle: bool = False

    @property
    def passes(self) -> float:
        """The local epochs, and one pass forward for a reference."""
        return self.epochs + FORWARD * (self.reference is not None)

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Trained:
        """Return the trained local model."""
        samples = samples_of(splits["train"])
        reference = outputs_of(self.reference, module, samples)
        optimiser = Optimiser(self.optimizer, self.momentum, self.weight_decay, self.clip, self.shuffle)
        parameters.write(module, self.w)
        with randomness(module, "train", self.seed, client):
            descend(module, samples, reference, self, client, optimiser)
        return Trained(w=parameters.read(module), size=len(samples))
