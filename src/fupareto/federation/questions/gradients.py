"""Losses and gradients at a model, and losses along a direction."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import batches, descend, logits_of, mean_loss, randomness
from fupareto.federation.questions.base import Answer, Question, flaw_of_vector
from fupareto.federation.request import Splits
from fupareto.parameters import Layout
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class LossAndGradient(Answer):
    """A local objective and its gradient, summed over ``steps`` batches (1 for a full gradient)."""

    loss: float
    gradient: Tensor
    steps: int


class GradientQuestion(Question, abstract=True):
    """A question that is answered by a loss and a gradient."""

    answered_by: ClassVar[type[Answer]] = LossAndGradient

    def flaw(self, answer: LossAndGradient, size: int) -> str | None:
        """Return what is wrong with the gradient, the loss or the number of steps."""
        if reason := flaw_of_vector(answer.gradient, size):
            return reason
        if np.isfinite(answer.loss) and answer.steps >= 1:
            return None
        return f"answered with loss {answer.loss} after {answer.steps} steps"


@dataclass(frozen=True)
class Gradient(GradientQuestion):
    """Full local loss and gradient at ``w``, the module in ``mode`` ("eval", or "train" with dropout active)."""

    w: Tensor
    loss: Loss
    mode: str = "eval"
    seed: int = 0
    reference: Tensor | None = None

    def answer(self, module: nn.Module, splits: Splits, client: str) -> LossAndGradient:
        """Return the mean loss over the training data and its gradient."""
        x, y = splits["train"]
        reference = logits_of(self.reference, module, x)
        parameters.write(module, self.w)
        module.zero_grad(set_to_none=True)
        total = 0.0
        with randomness(module, self.mode, self.seed, client):
            for batch_x, batch_y, batch_r in batches(x, y, reference):
                loss = self.loss(module(batch_x), batch_y, batch_r).sum() / len(y)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.item()
        gradient = parameters.read_gradient(module, Layout.of(module))
        module.zero_grad(set_to_none=True)
        return LossAndGradient(loss=total, gradient=gradient, steps=1)


@dataclass(frozen=True)
class PseudoGradient(GradientQuestion):
    """Loss at ``w`` and (w - w_i) / lr after local epochs of SGD: roughly the sum of the batch gradients."""

    w: Tensor
    loss: Loss
    lr: float
    epochs: int
    batch_size: int
    mode: str = "eval"  # of the loss; the epochs run in train mode
    seed: int = 0
    reference: Tensor | None = None

    def answer(self, module: nn.Module, splits: Splits, client: str) -> LossAndGradient:
        """Return the loss before the epochs, and what they moved."""
        x, y = splits["train"]
        reference = logits_of(self.reference, module, x)
        parameters.write(module, self.w)
        with randomness(module, self.mode, self.seed, client):
            loss = mean_loss(module, x, y, reference, self.loss)
        with randomness(module, "train", self.seed, client, "epochs"):
            steps = descend(module, x, y, reference, self)
        gradient = (self.w - parameters.read(module)) / self.lr
        gradient[Layout.of(module).trainable :] = 0.0
        return LossAndGradient(loss=loss, gradient=gradient, steps=steps)


@dataclass(frozen=True)
class Losses(Answer):
    """One loss per trial step."""

    losses: tuple[float, ...]


@dataclass(frozen=True)
class TrialLosses(Question):
    """Loss at ``w - step · direction`` for every step, forward passes only."""

    answered_by: ClassVar[type[Answer]] = Losses

    w: Tensor
    direction: Tensor
    steps: tuple[float, ...]
    loss: Loss
    mode: str = "eval"
    seed: int = 0

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Losses:
        """Return the mean loss over the training data at every trial step."""
        x, y = splits["train"]
        losses = []
        for step in self.steps:
            parameters.write(module, self.w - step * self.direction)
            with randomness(module, self.mode, self.seed, client):
                losses.append(mean_loss(module, x, y, None, self.loss))
        return Losses(losses=tuple(losses))

    def flaw(self, answer: Losses, size: int) -> str | None:
        """Return whether there is not one number per step."""
        if np.array(answer.losses, np.float64).shape != (len(self.steps),):
            return f"answered {len(answer.losses)} losses for {len(self.steps)} trial steps"
        return None
