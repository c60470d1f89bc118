"""FUPGA on the client: local training projected into a ball."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import randomness
from fupareto.federation.questions.training import Trained, TrainingQuestion
from fupareto.federation.request import Splits
from fupareto.parameters import Layout
from fupareto.tasks.losses import Loss
from fupareto.tasks.samples import samples_of


@dataclass(frozen=True)
class TrainWithin(TrainingQuestion):
    """Train locally by SGD with momentum, projected into a ball.

    Attributes:
        w: The model to train from (parameters,).
        center: Center of the ball (parameters,).
        radius: Radius of the ball.
        loss: Loss to minimise.
        lr: Learning rate.
        momentum: Momentum of SGD.
        clip: Largest norm of a batch's gradient.
        epochs: Local epochs.
        batch_size: Batch size.
        seed: Seed of random operations such as dropout.
    """

    w: Tensor
    center: Tensor
    radius: float
    loss: Loss
    lr: float
    momentum: float
    clip: float
    epochs: int
    batch_size: int
    seed: int

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Trained:
        """Return the local model; after every step it is projected into the ball (eq. 6 of the FUPGA paper)."""
        samples = samples_of(splits["train"])
        layout = Layout.of(module)
        w, velocity = self.w.clone(), torch.zeros_like(self.w)
        with randomness(module, "train", self.seed, client):
            for _ in range(self.epochs):
                for batch in samples.batches(self.batch_size):
                    parameters.write(module, w)
                    module.zero_grad(set_to_none=True)
                    outputs = samples.outputs(module, batch)
                    loss = samples.task.losses(self.loss, outputs, batch.targets).mean()
                    loss.backward()  # type: ignore[no-untyped-call]
                    gradient = parameters.read_gradient(module, layout)
                    gradient *= min(1.0, self.clip / max(float(gradient.norm()), 1e-12))
                    velocity = self.momentum * velocity + gradient
                    w = into_ball(w - self.lr * velocity, self.center, self.radius)
        module.zero_grad(set_to_none=True)
        return Trained(w, len(samples))


def into_ball(w: Tensor, center: Tensor, radius: float) -> Tensor:
    """Return the point of the ball nearest to ``w``."""
    distance = float((w - center).norm())
    return w if distance <= radius else center + (radius / distance) * (w - center)
