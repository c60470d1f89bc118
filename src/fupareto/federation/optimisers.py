"""Optimisers of local training, from ``torch.optim``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fupareto.errors import UserError

OPTIMISERS = ("sgd", "adam", "adamw")
Gradients = Sequence[Tensor | None]


@dataclass(frozen=True)
class Optimiser:
    """How a step follows from the gradient of a batch.

    Its state (momentum, moments) belongs to one local training: it starts anew in every round.

    Attributes:
        name: "sgd", "adam" or "adamw".
        momentum: Momentum of SGD.
        weight_decay: Weight decay; of "adamw" decoupled from the gradient.
        clip: Largest norm of a batch's gradient; None for any.
        shuffle: Whether the samples are put in a new random order for every epoch.
    """

    name: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    shuffle: bool = False

    def __post_init__(self) -> None:
        """Refuse values that make no optimiser."""
        if self.name not in OPTIMISERS:
            raise UserError(f"optimizer must be one of {', '.join(OPTIMISERS)}, not {self.name!r}")

    def start(self, weights: Sequence[Tensor], lr: float) -> Callable[[Gradients], None]:
        """Return a function that changes the weights by a step, given the gradients of a batch."""
        if self.name == "sgd" and not self.momentum and not self.weight_decay:
            return lambda gradients: _plain(weights, self._clipped(gradients), lr)
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[self.name]
        options = {"momentum": self.momentum} if self.name == "sgd" else {}
        optimiser = kind(list(weights), lr=lr, weight_decay=self.weight_decay, foreach=False, **options)

        def step(gradients: Gradients) -> None:
            for weight, gradient in zip(weights, self._clipped(gradients), strict=True):
                weight.grad = gradient
            optimiser.step()
            for weight in weights:
                weight.grad = None

        return step

    def _clipped(self, gradients: Gradients) -> Gradients:
        if self.clip is None:
            return gradients
        known = [g for g in gradients if g is not None]
        length = float(torch.nn.utils.get_total_norm(known)) if known else 0.0
        if length <= self.clip:
            return gradients
        return [None if g is None else g * (self.clip / length) for g in gradients]


@torch.no_grad()
def _plain(weights: Sequence[Tensor], gradients: Gradients, lr: float) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            weight.add_(gradient, alpha=-lr)


PLAIN = Optimiser()
