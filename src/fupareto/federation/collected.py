"""Answers of many clients together, as the server has them, and how clients are asked to work."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fupareto.federation.questions import Train
from fupareto.tasks.losses import Loss

Missing = dict[str, str]  # client id -> why it did not answer
FLOAT = 4  # bytes of a float32, the unit of everything large that crosses the network


@dataclass
class Traffic:
    """Bytes that crossed the network, or would have: the payload, without any protocol's overhead."""

    up: int = 0
    down: int = 0


@dataclass(frozen=True)
class Local:
    """How a client works locally for a training round or a pseudo-gradient."""

    lr: float
    epochs: int = 1
    batch_size: int = 200
    seed: int = 0

    def question(self, w: Tensor, loss: Loss, reference: Tensor | None = None) -> Train:
        """Return the question for a local model, trained from ``w``."""
        return Train(w, loss, self.lr, self.epochs, self.batch_size, self.seed, reference)


@dataclass(frozen=True)
class Trial:
    """The models of a line search, ``w - step · direction``, and the mode in which losses are computed there."""

    w: Tensor
    direction: Tensor
    steps: tuple[float, ...]
    mode: str = "eval"
    seed: int = 0


@dataclass(frozen=True)
class Gradients:
    """Losses and gradients of the clients that answered, in the order asked."""

    ids: tuple[str, ...]
    losses: NDArray[np.float64]  # (clients,)
    gradients: Tensor  # (clients, parameters) float32
    steps: NDArray[np.float64]  # (clients,) batches summed in each gradient
    missing: Missing = field(default_factory=dict)


@dataclass(frozen=True)
class Models:
    """Local models of the clients that answered, in the order asked."""

    ids: tuple[str, ...]
    models: Tensor  # (clients, parameters) float32
    sizes: tuple[int, ...]
    missing: Missing = field(default_factory=dict)


@dataclass(frozen=True)
class Mean:
    """The mean of local models, weighted by their samples; ``w`` is None when nobody answered."""

    ids: tuple[str, ...]
    w: Tensor | None
    missing: Missing = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """Counts by client and split of the clients that answered."""

    counts: dict[str, dict[str, dict[str, float]]]
    missing: Missing = field(default_factory=dict)

    def accuracy(self, client: str, split: str) -> float | None:
        """Return the fraction of right answers, or None where there is nothing to count."""
        found = self.counts.get(client, {}).get(split)
        return found["right"] / found["samples"] if found and found["samples"] else None
