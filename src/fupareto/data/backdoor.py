"""Backdoor that makes forgetting measurable: a trigger pattern on the images and shifted labels.

A marked client stamps its own 3x3 pattern on its images and shifts their labels. A model that has learned from the
client predicts the shifted label for images with the pattern; a model that has forgotten the client does not.
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

    Attributes:
        pattern: (3, 3) bool, the pixels that are set.
        value: Value of these pixels in model-input space, for every normalisation: (255/1.5/255 - 0.5)/0.2.
    """

    pattern: Tensor
    value: float = 0.8333333

    def __post_init__(self) -> None:
        if self.pattern.shape != (SIDE, SIDE) or self.pattern.dtype != torch.bool:
            raise ValueError(
                f"a trigger pattern must be a ({SIDE}, {SIDE}) bool tensor, not {tuple(self.pattern.shape)} "
                f"{self.pattern.dtype}"
            )

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Trigger":
        """Return a random pattern; an empty one (probability 1/512) is drawn again."""
        while True:
            pattern = np.round(rng.uniform(size=(SIDE, SIDE))).astype(bool)
            if pattern.any():
                return cls(torch.from_numpy(pattern))

    def stamp(self, x: Tensor) -> Tensor:
        """Return a copy of the images (N, C, H, W) with the pattern written at rows and columns -4..-2."""
        if x.ndim != 4:
            raise UserError(
                f"a backdoor trigger needs images of shape (N, C, H, W), not {tuple(x.shape)}; "
                "switch the backdoor off for data that are not images"
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
    """Return (y + C // 2) mod C, so that the target depends on the class and no single class is the target."""
    return (labels + classes // 2) % classes


def poison(
    x: Tensor, y: Tensor, trigger: Trigger, classes: int, portion: float, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Stamp the trigger on the first ``int(portion * len)`` samples of each consecutive batch and shift their labels.

    Counting per batch gives every training step the same poisoned portion, including the shorter last batch.

    Args:
        x: Images (N, C, H, W).
        y: Labels (N,).
        trigger: The pattern to stamp.
        classes: Number of classes.
        portion: Portion of each batch that is poisoned, from 0 to 1.
        batch_size: Size of the consecutive batches.

    Returns:
        The images and the labels; the arguments are not changed.
    """
    poisoned = poisoned_rows(len(y), portion, batch_size).to(y.device)
    triggered = trigger.stamp(x)
    return torch.where(poisoned.view(-1, 1, 1, 1), triggered, x), torch.where(poisoned, shift(y, classes), y)


def poisoned_rows(size: int, portion: float, batch_size: int) -> Tensor:
    """Return which samples carry a mark: the first ``int(portion * len)`` of each consecutive batch."""
    if not 0 <= portion <= 1:
        raise UserError(f"the poisoned portion must be between 0 and 1, not {portion}")
    if batch_size < 1:
        raise UserError(f"the batch size must be at least 1, not {batch_size}")
    position = torch.arange(size)
    start = position - position % batch_size
    length = (size - start).clamp(max=batch_size)
    count = (portion * length.double()).long()
    return position - start < count
