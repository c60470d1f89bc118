"""FedEditor on the client: editing of representations towards the nearest wrong class."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import batches, features_of, outputs_of, randomness
from fupareto.federation.questions.base import FORWARD
from fupareto.federation.questions.training import Trained, TrainingQuestion
from fupareto.federation.request import Splits
from fupareto.parameters import Layout
from fupareto.tasks.samples import cut, samples_of


@dataclass(frozen=True)
class Edit(TrainingQuestion):
    """Pull representations to the nearest wrong class, close to a reference model.

    Attributes:
        w: The model (parameters,).
        reference: The reference model (parameters,).
        tau: Temperature of the alignment.
        mu: Weight of the distance to ``reference``.
        keep: Whether to preserve the outputs of ``reference`` on held-out data.
        lr: Learning rate.
        epochs: Local epochs.
        batch_size: Batch size.
        seed: Seed of random operations such as dropout.
    """

    w: Tensor
    reference: Tensor
    tau: float
    mu: float
    keep: bool
    lr: float
    epochs: int
    batch_size: int
    seed: int

    @property
    def passes(self) -> float:
        """The local epochs, and one pass forward for the targets; passes over held-out data are not counted."""
        return self.epochs + FORWARD

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Trained:
        """Minimise alignment + keeping + (mu / 2) · ||w - reference||² by SGD.

        Alignment is the cross-entropy of cosines to the class centroids, at temperature tau, towards the nearest wrong
        class; keeping is KL(reference || model) on held-out data.
        """
        (x, y), (held_x, held_y) = splits["train"], splits["test"]
        reference = outputs_of(self.reference, module, samples_of(splits["test"]))
        assert reference is not None
        known, centroids = class_centroids(module, held_x, held_y)
        targets = nearest_wrong(features_of(module, x), y, known, centroids)
        usable = targets >= 0  # samples without another known class are left out
        x, targets = x[usable], targets[usable]
        parameters.write(module, self.w)
        weights, start = parameters.trainable(module), Layout.of(module).named(self.reference)
        anchor = [start[name] for name, p in module.named_parameters() if p.requires_grad]
        keeping = _endless(held_x, reference, self.batch_size)
        with randomness(module, "train", self.seed, client):
            for _ in range(self.epochs):
                for batch_x, target in batches(x, targets, self.batch_size) if len(x) else ():
                    loss = self._alignment(module, batch_x, target, centroids)
                    if self.keep:
                        loss = loss + _divergence(module, *next(keeping))
                    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
                    with torch.no_grad():
                        for weight, gradient, origin in zip(weights, gradients, anchor, strict=True):
                            pull = self.mu * (weight - origin)
                            weight.sub_(self.lr * (pull if gradient is None else pull + gradient))
        return Trained(parameters.read(module), len(y))

    def _alignment(self, module: nn.Module, x: Tensor, target: Tensor, centroids: Tensor) -> Tensor:
        phi, _ = parameters.features(module, x)
        cosines = F.normalize(phi, dim=1) @ F.normalize(centroids, dim=1).T
        return F.cross_entropy(cosines / self.tau, target)


def class_centroids(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the classes that occur in ``y`` and the means of their features."""
    features = features_of(module, x)
    known = torch.unique(y)
    return known, torch.stack([features[y == k].mean(0) for k in known])


def nearest_wrong(features: Tensor, labels: Tensor, known: Tensor, centroids: Tensor) -> Tensor:
    """Return the position of the nearest centroid of another class, per sample; -1 if there is none."""
    distance = torch.cdist(features, centroids)
    distance[labels[:, None] == known[None, :]] = torch.inf
    nearest = distance.argmin(1)
    nearest[torch.isinf(distance).all(1)] = -1
    return nearest


def _divergence(module: nn.Module, x: Tensor, reference: Tensor) -> Tensor:
    log_p = F.log_softmax(module(x), 1)
    return F.kl_div(log_p, F.log_softmax(reference, 1), reduction="batchmean", log_target=True)


def _endless(x: Tensor, reference: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return itertools.cycle(list(zip(cut(x, size), cut(reference, size), strict=True)))
