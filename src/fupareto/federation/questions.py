"""What can a server ask a client, and what comes back? Plain dataclasses that cross a network as they are."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class Train:
    """Train locally from ``w`` by plain SGD; ``seed`` feeds dropout, batches keep their order.

    ``reference`` is another model, for losses that look at its logits too.
    """

    w: Tensor
    loss: Loss
    lr: float
    epochs: int
    batch_size: int
    seed: int
    reference: Tensor | None = None


@dataclass(frozen=True)
class TrainWithin:
    """Train locally from ``w`` by SGD with momentum, never further than ``radius`` from ``center`` (FUPGA)."""

    w: Tensor
    center: Tensor
    radius: float
    loss: Loss
    lr: float
    momentum: float
    clip: float  # largest norm of a batch's gradient
    epochs: int
    batch_size: int
    seed: int


@dataclass(frozen=True)
class TrainHead:
    """Train another last layer on the features that ``w`` computes, towards wrong labels (FedAU).

    ``head`` is the layer's part of a model's vector. A sample's wrong label is drawn once, by ``label_seed`` and the
    client, uniformly over the other classes.
    """

    w: Tensor
    head: Tensor
    lr: float
    epochs: int
    batch_size: int
    label_seed: int


@dataclass(frozen=True)
class Edit:
    """Pull representations to the nearest wrong class, staying near ``reference`` (FedEditor).

    ``tau`` is the temperature of the alignment, ``mu`` the weight of the distance to ``reference``; with ``keep`` the
    outputs on held-out data are kept near those of ``reference``.
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


@dataclass(frozen=True)
class Gradient:
    """Full local loss and gradient at ``w``, the module in ``mode`` ("eval", or "train" with dropout active)."""

    w: Tensor
    loss: Loss
    mode: str = "eval"
    seed: int = 0
    reference: Tensor | None = None


@dataclass(frozen=True)
class PseudoGradient:
    """Loss at ``w`` and (w - w_i) / lr after local epochs of SGD: roughly the sum of the batch gradients."""

    w: Tensor
    loss: Loss
    lr: float
    epochs: int
    batch_size: int
    mode: str = "eval"  # of the loss; the epochs run in train mode
    seed: int = 0
    reference: Tensor | None = None


@dataclass(frozen=True)
class TrialLosses:
    """Loss at ``w - step · direction`` for every step, forward passes only."""

    w: Tensor
    direction: Tensor
    steps: tuple[float, ...]
    loss: Loss
    mode: str = "eval"
    seed: int = 0


@dataclass(frozen=True)
class Evaluate:
    """Count right answers on the named splits; a client without a split leaves it out of its answer.

    ``clean|train`` is the first of the two that a client has, under its own name.
    """

    w: Tensor
    splits: tuple[str, ...]


@dataclass(frozen=True)
class Predict:
    """Return the model's outputs on the first of the named splits that the client has, sample by sample.

    For audits only: what a model says of single samples is what a membership attack works with.
    """

    w: Tensor
    splits: tuple[str, ...]


Question = Train | TrainWithin | TrainHead | Edit | Gradient | PseudoGradient | TrialLosses | Evaluate | Predict


@dataclass(frozen=True)
class Trained:
    """A local model (or last layer) and the number of samples behind it."""

    w: Tensor
    size: int


@dataclass(frozen=True)
class LossAndGradient:
    """A local objective and its gradient, summed over ``steps`` batches (1 for a full gradient)."""

    loss: float
    gradient: Tensor
    steps: int


@dataclass(frozen=True)
class Losses:
    """One loss per trial step."""

    losses: tuple[float, ...]


@dataclass(frozen=True)
class Evaluated:
    """Split -> samples, right answers and mean cross-entropy."""

    counts: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Predicted:
    """Logits and labels, in the order of the client's samples."""

    logits: Tensor  # (samples, classes) float32
    labels: Tensor  # (samples,) int64


@dataclass(frozen=True)
class Failure:
    """No usable answer, and why."""

    reason: str


Answer = Trained | LossAndGradient | Losses | Evaluated | Predicted


class Types:
    """Questions and answers by class name, for engines that rebuild them from bytes."""

    questions: ClassVar[dict[str, type[Question]]] = {
        t.__name__: t
        for t in (Train, TrainWithin, TrainHead, Edit, Gradient, PseudoGradient, TrialLosses, Evaluate, Predict)
    }
    answers: ClassVar[dict[str, type[Answer | Failure]]] = {
        t.__name__: t for t in (Trained, LossAndGradient, Losses, Evaluated, Predicted, Failure)
    }
