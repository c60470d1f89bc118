"""FedAU on the client: a second last layer, trained towards wrong labels."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import batches, features_of
from fupareto.federation.questions.training import Trained, TrainingQuestion
from fupareto.federation.request import Splits
from fupareto.parameters import Layout
from fupareto.randomness import stream


@dataclass(frozen=True)
class TrainHead(TrainingQuestion):
    """Train another last layer on the features that ``w`` computes, towards wrong labels; the features stay fixed.

    ``head`` is the layer's part of a model's vector. A sample's wrong label is drawn once, by ``label_seed`` and the
    client, uniformly over the other classes. FedAU trains the features with both heads. Here they learn from the first
    one alone, so that recording what FedAU needs does not change the model that is trained.
    """

    w: Tensor
    head: Tensor
    lr: float
    epochs: int
    batch_size: int
    label_seed: int

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Trained:
        """Return the second head after the epochs."""
        x, y = splits["train"]
        head = Layout.of(module).head()
        parameters.write(module, self.w)
        module.eval()
        seen = features_of(module, x)
        wrong = wrong_labels(y, head.shape[0], self.label_seed, client)
        w = self.head.clone().requires_grad_()
        for _ in range(self.epochs):
            for features, labels, _ in batches(seen, wrong, size=self.batch_size):
                (gradient,) = torch.autograd.grad(F.cross_entropy(head.apply(features, w), labels), w)
                w = (w - self.lr * gradient).detach().requires_grad_()
        return Trained(w.detach(), len(y))

    def flaw(self, answer: Trained, size: int) -> str | None:
        """Return what is wrong with a vector of the last layer's size."""
        return super().flaw(answer, self.head.numel())


def wrong_labels(y: Tensor, classes: int, seed: int, client: str) -> Tensor:
    """Return for every sample another class than its own, drawn uniformly, the same at every call."""
    offset = stream(seed, "wrong labels", client).integers(1, classes, size=len(y))
    return (y + torch.from_numpy(np.asarray(offset, np.int64)).to(y.device)) % classes
