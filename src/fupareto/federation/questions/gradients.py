"""Questions for losses and gradients at a model, and for losses along a direction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import descend, mean_loss, outputs_of, randomness
from fupareto.federation.questions.base import FORWARD, Answer, Question, flaw_of_vector
from fupareto.federation.questions.schema import Count, Numbers
from fupareto.federation.request import Splits
from fupareto.parameters import Layout
from fupareto.tasks.losses import Loss
from fupareto.tasks.samples import samples_of

ROUNDING = 1e-3  # by which rounding may take a loss below its lowest value


@dataclass(frozen=True)
class LossAndGradient(Answer):
    """A local loss and its gradient.

    Attributes:
        loss: Mean loss over the training data.
        gradient: The gradient (parameters,).
        steps: Number of batches summed in the gradient; 1 for a full gradient.
    """

    loss: float
    gradient: Tensor
    steps: Count


class GradientQuestion(Question, abstract=True):
    """Base class of questions that are answered by a loss and a gradient."""

    answered_by: ClassVar[type[Answer]] = LossAndGradient
    loss: Loss

    def flaw(self, answer: LossAndGradient, size: int) -> str | None:
        """Return why the gradient, the loss or the number of steps cannot be used, or None."""
        if reason := flaw_of_vector(answer.gradient, size):
            return reason
        if not (np.isfinite(answer.loss) and answer.steps >= 1):
            return f"answered with loss {answer.loss} after {answer.steps} steps"
        return flaw_of_losses((answer.loss,), self.loss)


@dataclass(frozen=True)
class Gradient(GradientQuestion):
    """Loss and full gradient at ``w``.

    Attributes:
        w: The model (parameters,).
        loss: The loss.
        mode: Mode of the module, "eval", or "train" with dropout active.
        seed: Seed of random operations in mode "train".
        reference: Reference model, for losses that use one.
    """

    w: Tensor
    loss: Loss
    mode: str = "eval"
    seed: int = 0
    reference: Tensor | None = None

    @property
    def passes(self) -> float:
        """One pass, and one forward for a reference."""
        return 1 + FORWARD * (self.reference is not None)

    def answer(self, module: nn.Module, splits: Splits, client: str) -> LossAndGradient:
        """Return the mean loss over the training data and its gradient."""
        samples = samples_of(splits["train"])
        reference, task = outputs_of(self.reference, module, samples), samples.task
        parameters.write(module, self.w)
        module.zero_grad(set_to_none=True)
        total = 0.0
        with randomness(module, self.mode, self.seed, client):
            for batch in samples.batches(reference=reference):
                outputs = task.forward(module, batch.inputs)
                loss = task.losses(self.loss, outputs, batch.targets, batch.reference).sum() / len(samples)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.item()
        gradient = parameters.read_gradient(module, Layout.of(module))
        module.zero_grad(set_to_none=True)
        return LossAndGradient(loss=total, gradient=gradient, steps=1)


@dataclass(frozen=True)
class PseudoGradient(GradientQuestion):
    """Loss at ``w`` and pseudo-gradient (w - w_i) / lr after local SGD, about the sum of the batch gradients.

    Attributes:
        w: The model (parameters,).
        loss: The loss.
        lr: Learning rate.
        epochs: Local epochs.
        batch_size: Batch size.
        mode: Mode of the module for the loss; local epochs run in mode "train".
        seed: Seed of random operations in mode "train".
        reference: Reference model, for losses that use one.
    """

    w: Tensor
    loss: Loss
    lr: float
    epochs: int
    batch_size: int
    mode: str = "eval"
    seed: int = 0
    reference: Tensor | None = None

    @property
    def passes(self) -> float:
        """The local epochs, one pass forward for the loss, and one for a reference."""
        return self.epochs + FORWARD * (1 + (self.reference is not None))

    def answer(self, module: nn.Module, splits: Splits, client: str) -> LossAndGradient:
        """Return the loss before local SGD, and the pseudo-gradient."""
        samples = samples_of(splits["train"])
        reference = outputs_of(self.reference, module, samples)
        parameters.write(module, self.w)
        with randomness(module, self.mode, self.seed, client):
            loss = mean_loss(module, samples, reference, self.loss)
        with randomness(module, "train", self.seed, client, "epochs"):
            steps = descend(module, samples, reference, self, client)
        gradient = (self.w - parameters.read(module)) / self.lr
        gradient[Layout.of(module).trainable :] = 0.0
        return LossAndGradient(loss=loss, gradient=gradient, steps=steps)


@dataclass(frozen=True)
class Losses(Answer):
    """One loss per trial step."""

    losses: Numbers


@dataclass(frozen=True)
class TrialLosses(Question):
    """Losses at ``w - step · direction`` for every trial step, by forward passes only.

    Attributes:
        w: The model (parameters,).
        direction: The direction (parameters,).
        steps: The trial steps.
        loss: The loss.
        mode: Mode of the module, "eval", or "train" with dropout active.
        seed: Seed of random operations in mode "train".
    """

    answered_by: ClassVar[type[Answer]] = Losses
    in_order: ClassVar[bool] = True

    w: Tensor
    direction: Tensor
    steps: tuple[float, ...]
    loss: Loss
    mode: str = "eval"
    seed: int = 0

    @property
    def passes(self) -> float:
        """One pass forward for every trial step."""
        return FORWARD * len(self.steps)

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Losses:
        """Return the mean loss over the training data at every trial step."""
        samples = samples_of(splits["train"])
        losses = []
        for step in self.steps:
            parameters.write(module, self.w - step * self.direction)
            with randomness(module, self.mode, self.seed, client):
                losses.append(mean_loss(module, samples, None, self.loss))
        return Losses(losses=tuple(losses))

    def flaw(self, answer: Losses, size: int) -> str | None:
        """Return why the losses cannot be used, or None: there must be one per step."""
        if len(answer.losses) != len(self.steps):
            return f"answered {len(answer.losses)} losses for {len(self.steps)} trial steps"
        return flaw_of_losses(answer.losses, self.loss)


def flaw_of_losses(values: Sequence[float], loss: Loss) -> str | None:
    """Return why these cannot be values of the loss, or None; one that has diverged may be anything but a number."""
    low = min((value for value in values if np.isfinite(value)), default=0.0)
    if low < loss.lowest - ROUNDING:
        return f"answered with a loss of {low:.3g}, where {loss.name} is never below {loss.lowest:g}"
    return None
