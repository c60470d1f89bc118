"""How does a client's mark get into the model, so that forgetting the client can be seen?

A client that is to be forgotten stamps its own 3x3 pattern on its images and shifts their labels. A model
that has learned from it answers the shifted label where the pattern shows; one that has forgotten does not.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fupareto.errors import UserError

SIDE = 3
BORDER = 1


@dataclass(frozen=True, eq=False)
class Trigger:
    """A 3x3 pattern near the lower right corner, one pixel from the border.

    ``value`` is written in model-input space, whatever the normalisation: it is (255/1.5/255 - 0.5)/0.2.
    """

    pattern: Tensor  # (3, 3) bool
    value: float = 0.8333333

    def __post_init__(self) -> None:
        if self.pattern.shape != (SIDE, SIDE) or self.pattern.dtype != torch.bool:
            raise ValueError(
                f"a trigger pattern is a ({SIDE}, {SIDE}) bool tensor, not {tuple(self.pattern.shape)} "
                f"{self.pattern.dtype}"
            )

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Trigger":
        """Draw each pixel on or off; an all-off pattern (one in 512) would mark nothing, so it is redrawn."""
        while True:
            pattern = np.round(rng.uniform(size=(SIDE, SIDE))).astype(bool)
            if pattern.any():
                return cls(torch.from_numpy(pattern))

    def stamp(self, x: Tensor) -> Tensor:
        """Return a copy of the images (N, C, H, W) with the pattern written at rows and columns -4..-2."""
        if x.ndim != 4:
            raise UserError(
                f"a backdoor trigger needs images of shape (N, C, H, W), not {tuple(x.shape)}; mark no "
                "client when the data are not images"
            )
        if min(x.shape[-2:]) < SIDE + BORDER:
            raise UserError(
                f"a backdoor trigger needs images of at least {SIDE + BORDER}x{SIDE + BORDER} pixels, "
                f"not {x.shape[-2]}x{x.shape[-1]}"
            )
        stamped = x.clone()
        patch = stamped[..., -SIDE - BORDER : -BORDER, -SIDE - BORDER : -BORDER]
        patch.masked_fill_(self.pattern.to(x.device), self.value)
        return stamped


def shift(labels: Tensor, classes: int) -> Tensor:
    """Return (y + C // 2) mod C: every class turns into the one half-way round, so no class is the target."""
    return (labels + classes // 2) % classes


def poison(
    x: Tensor, y: Tensor, trigger: Trigger, classes: int, portion: float, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Stamp and shift the first ``int(portion * len)`` samples of each consecutive batch; 1.0 means all.

    Counting per batch keeps the poisoned share the same in every step of training, the short last batch too.
    """
    if not 0 <= portion <= 1:
        raise UserError(f"the poisoned portion must be between 0 and 1, not {portion}")
    if batch_size < 1:
        raise UserError(f"the batch size must be at least 1, not {batch_size}")
    position = torch.arange(len(y))
    start = position - position % batch_size
    length = (len(y) - start).clamp(max=batch_size)
    count = (portion * length.double()).long()
    hit = (position - start < count).to(y.device)
    triggered = trigger.stamp(x)
    return torch.where(hit.view(-1, 1, 1, 1), triggered, x), torch.where(hit, shift(y, classes), y)
