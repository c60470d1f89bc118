"""How does a client do what only one method asks for? FUPGA's ball, FedAU's second head, FedEditor's edit."""

import itertools
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation.local import batch_size, batches, logits_of, randomness
from fupareto.federation.questions import Edit, TrainHead, TrainWithin
from fupareto.parameters import Layout
from fupareto.randomness import stream

Samples = tuple[Tensor, Tensor]


def train_within(question: TrainWithin, module: nn.Module, x: Tensor, y: Tensor, client: str) -> Tensor:
    """Run SGD with momentum; after every step a model outside the ball goes back to its surface (FUPGA, eq. 6)."""
    layout = Layout.of(module)
    w, velocity = question.w.clone(), torch.zeros_like(question.w)
    with randomness(module, "train", question.seed, client):
        for _ in range(question.epochs):
            for batch_x, batch_y, _ in batches(x, y, size=question.batch_size):
                parameters.write(module, w)
                module.zero_grad(set_to_none=True)
                question.loss(module(batch_x), batch_y).mean().backward()  # type: ignore[no-untyped-call]
                gradient = parameters.read_gradient(module, layout)
                gradient *= min(1.0, question.clip / max(float(gradient.norm()), 1e-12))
                velocity = question.momentum * velocity + gradient
                w = into_ball(w - question.lr * velocity, question.center, question.radius)
    module.zero_grad(set_to_none=True)
    return w


def into_ball(w: Tensor, center: Tensor, radius: float) -> Tensor:
    """Return the point of the ball that is nearest to ``w``."""
    distance = float((w - center).norm())
    return w if distance <= radius else center + (radius / distance) * (w - center)


def train_head(question: TrainHead, module: nn.Module, x: Tensor, y: Tensor, client: str) -> Tensor:
    """Train a second last layer on the features of ``w`` towards wrong labels; the features stay as they are.

    FedAU trains the features with both heads. Here they learn from the first one alone, so that recording what FedAU
    needs does not change the model that is trained.
    """
    head = Layout.of(module).head()
    parameters.write(module, question.w)
    module.eval()
    seen = _features(module, x)
    wrong = wrong_labels(y, head.shape[0], question.label_seed, client)
    w = question.head.clone().requires_grad_()
    for _ in range(question.epochs):
        for features, labels, _ in batches(seen, wrong, size=question.batch_size):
            (gradient,) = torch.autograd.grad(F.cross_entropy(head.apply(features, w), labels), w)
            w = (w - question.lr * gradient).detach().requires_grad_()
    return w.detach()


def wrong_labels(y: Tensor, classes: int, seed: int, client: str) -> Tensor:
    """Return for every sample another class than its own, drawn uniformly, the same at every call."""
    offset = stream(seed, "wrong labels", client).integers(1, classes, size=len(y))
    return (y + torch.from_numpy(np.asarray(offset, np.int64)).to(y.device)) % classes


def edit(question: Edit, module: nn.Module, forget: Samples, held_out: Samples, client: str) -> Tensor:
    """Minimise alignment + keeping + (mu / 2) · ||w - w0||² by SGD, w0 being the question's reference.

    Alignment is the cross-entropy of cosines to the class centroids, at temperature tau, towards the nearest wrong
    class; keeping is KL(reference || model) on held-out data.
    """
    (x, _), (held_x, held_y) = forget, held_out
    reference = logits_of(question.reference, module, held_x)
    assert reference is not None
    known, centroids = class_centroids(module, held_x, held_y)
    targets = nearest_wrong(_features(module, x), forget[1], known, centroids)
    usable = targets >= 0  # a sample all of whose known classes are its own has nowhere to go
    x, targets = x[usable], targets[usable]
    parameters.write(module, question.w)
    weights, start = parameters.trainable(module), Layout.of(module).named(question.reference)
    anchor = [start[name] for name, p in module.named_parameters() if p.requires_grad]
    keeping = _endless(held_x, reference, question.batch_size)
    with randomness(module, "train", question.seed, client):
        for _ in range(question.epochs):
            for batch_x, target, _ in batches(x, targets, size=question.batch_size) if len(x) else ():
                phi, _ = parameters.features(module, batch_x)
                cosines = F.normalize(phi, dim=1) @ F.normalize(centroids, dim=1).T
                loss = F.cross_entropy(cosines / question.tau, target)
                if question.keep:
                    kept_x, kept = next(keeping)
                    log_p = F.log_softmax(module(kept_x), 1)
                    loss = loss + F.kl_div(log_p, F.log_softmax(kept, 1), reduction="batchmean", log_target=True)
                gradients = torch.autograd.grad(loss, weights, allow_unused=True)
                with torch.no_grad():
                    for weight, gradient, origin in zip(weights, gradients, anchor, strict=True):
                        pull = question.mu * (weight - origin)
                        weight.sub_(question.lr * (pull if gradient is None else pull + gradient))
    return parameters.read(module)


def class_centroids(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the classes that occur and the mean of their features, the module as it is."""
    features = _features(module, x)
    known = torch.unique(y)
    return known, torch.stack([features[y == k].mean(0) for k in known])


def nearest_wrong(features: Tensor, labels: Tensor, known: Tensor, centroids: Tensor) -> Tensor:
    """Return the position of the nearest centroid of another class than the sample's; -1 where there is none."""
    distance = torch.cdist(features, centroids)
    distance[labels[:, None] == known[None, :]] = torch.inf
    nearest = distance.argmin(1)
    nearest[torch.isinf(distance).all(1)] = -1
    return nearest


@torch.no_grad()
def _features(module: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([parameters.features(module, part)[0] for part in torch.split(x, batch_size(x))])


def _endless(x: Tensor, reference: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return itertools.cycle(list(zip(torch.split(x, size), torch.split(reference, size), strict=True)))
