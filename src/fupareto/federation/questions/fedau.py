"""FedAU on the client: training of a second last layer towards wrong labels."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import batches, features_of
from fupareto.federation.questions.base import FORWARD
from fupareto.federation.questions.training import Trained, TrainingQuestion
from fupareto.federation.request import Splits
from fupareto.parameters import Layout
from fupareto.randomness import stream


@dataclass(frozen=True)
class TrainHead(TrainingQuestion):
    """Train a second last layer towards wrong labels, on the fixed features of ``w``.

    A sample's wrong label is drawn once, uniformly over the other classes. FedAU trains the features with both heads;
    here only the first head trains them, so that recording for FedAU does not change the trained model.

    Attributes:
        w: The model (parameters,).
        head: The second head, flat.
        lr: Learning rate.
        epochs: Local epochs.
        batch_size: Batch size.
        label_seed: Seed of the wrong labels.
    """

    w: Tensor
    head: Tensor
    lr: float
    epochs: int
    batch_size: int
    label_seed: int

    @property
    def passes(self) -> float:
        """One pass forward for the features; the epochs of the last layer are neglected."""
        return FORWARD

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Trained:
        """Return the trained second head."""
        x, y = splits["train"]
        head = Layout.of(module).head()
        parameters.write(module, self.w)
        module.eval()
        seen = features_of(module, x)
        wrong = wrong_labels(y, head.shape[0], self.label_seed, client)
        w = self.head.clone().requires_grad_()
        for _ in range(self.epochs):
            for features, labels in batches(seen, wrong, self.batch_size):
                (gradient,) = torch.autograd.grad(F.cross_entropy(head.apply(features, w), labels), w)
                w = (w - self.lr * gradient).detach().requires_grad_()
        return Trained(w.detach(), len(y))

    def flaw(self, answer: Trained, size: int) -> str | None:
        """Return why the second head cannot be used, or None."""
        return super().flaw(answer, self.head.numel())


def wrong_labels(y: Tensor, classes: int, seed: int, client: str) -> Tensor:
    """Return for every sample a random class other than its own, the same at every call."""
    offset = stream(seed, "wrong labels", client).integers(1, classes, size=len(y))
    return (y + torch.from_numpy(np.asarray(offset, np.int64)).to(y.device)) % classes
