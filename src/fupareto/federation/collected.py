"""Collected answers of many clients, and the parameters of local training and trial steps."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fupareto.federation.questions import Train
from fupareto.tasks.losses import Loss

Missing = dict[str, str]  # client id -> reason for the missing answer
FLOAT = 4  # bytes of a float32, the type of models and gradients


@dataclass
class Traffic:
    """What was asked of the clients: payload bytes, without protocol overhead, and work.

    Attributes:
        up: Bytes from clients to the server.
        down: Bytes from the server to clients.
        passes: Passes of single clients over their training data, see ``Question.passes``.
    """

    up: int = 0
    down: int = 0
    passes: float = 0.0


@dataclass(frozen=True)
class Local:
    """Parameters of local training, for a training round or a pseudo-gradient, which is one of plain SGD.

    Attributes:
        lr: Learning rate.
        epochs: Local epochs.
        batch_size: Batch size.
        seed: Seed of random operations such as dropout.
        optimizer: "sgd", "adam" or "adamw", of torch.optim; its state starts anew in every round.
        momentum: Momentum of SGD.
        weight_decay: Weight decay.
        clip: Largest norm of a batch's gradient; None for any.
        shuffle: Whether the samples are put in a new random order for every epoch.
    """

    lr: float
    epochs: int = 1
    batch_size: int = 200
    seed: int = 0
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    shuffle: bool = False

    def question(self, w: Tensor, loss: Loss, reference: Tensor | None = None) -> Train:
        """Return the question for a local model.

        Args:
            w: The model to train from.
            loss: Loss to minimise.
            reference: Reference model, for losses that use one.
        """
        how = (self.optimizer, self.momentum, self.weight_decay, self.clip, self.shuffle)
        return Train(w, loss, self.lr, self.epochs, self.batch_size, self.seed, reference, *how)


@dataclass(frozen=True)
class Trial:
    """Trial models of a line search, ``w - step · direction``.

    Attributes:
        w: The model (parameters,).
        direction: The direction (parameters,).
        steps: The trial steps.
        mode: Mode of the module when losses are computed, "eval" or "train".
        seed: Seed of dropout in mode "train".
        lacking: Clients that no gradient question of the round has sent ``w``, so that it is sent now.
    """

    w: Tensor
    direction: Tensor
    steps: tuple[float, ...]
    mode: str = "eval"
    seed: int = 0
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gradients:
    """Losses and gradients of the clients that answered, in the order asked.

    Attributes:
        ids: Clients that answered.
        losses: One loss per client (clients,).
        gradients: float32 (clients, parameters).
        steps: Number of batches summed in each gradient (clients,).
        missing: Clients that gave no usable answer, with the reason.
    """

    ids: tuple[str, ...]
    losses: NDArray[np.float64]
    gradients: Tensor
    steps: NDArray[np.float64]
    missing: Missing = field(default_factory=dict)


@dataclass(frozen=True)
class Models:
    """Local models of the clients that answered, in the order asked.

    Attributes:
        ids: Clients that answered.
        models: float32 (clients, parameters).
        sizes: Number of training samples per client.
        missing: Clients that gave no usable answer, with the reason.
    """

    ids: tuple[str, ...]
    models: Tensor
    sizes: tuple[int, ...]
    missing: Missing = field(default_factory=dict)


@dataclass(frozen=True)
class Mean:
    """Mean of local models (averaging.py).

    Attributes:
        ids: Clients that answered.
        w: The mean; None if no client answered.
        missing: Clients that gave no usable answer, with the reason.
        limited: Clients whose claimed size or update was limited, with the reason.
    """

    ids: tuple[str, ...]
    w: Tensor | None
    missing: Missing = field(default_factory=dict)
    limited: dict[str, str] = field(default_factory=dict)

    @property
    def told(self) -> dict[str, dict[str, str]]:
        """Entries for a round's record: missing clients and, if there are any, limited ones."""
        return {"missing": self.missing, **({"limited": self.limited} if self.limited else {})}


@dataclass(frozen=True)
class Evaluation:
    """Measurements of the clients that answered.

    Attributes:
        counts: Samples, correct predictions and mean loss, by client and split.
        missing: Clients that gave no usable answer, with the reason.
    """

    counts: dict[str, dict[str, dict[str, float]]]
    missing: Missing = field(default_factory=dict)

    def accuracy(self, client: str, split: str) -> float | None:
        """Return the accuracy of a client on a split; None if it was not measured."""
        found = self.counts.get(client, {}).get(split)
        return found["right"] / found["samples"] if found and found["samples"] else None
