"""Averages of local models that one client cannot take over.

``mean`` is the mean weighted by samples, as in FedAvg. A client that claims FAR_SIZE times the median number of samples
counts with the median, and an update longer than FAR_LENGTH times the median length is shortened to the median; honest
clients are far from both, and then the mean is bit for bit the plain one. Three clients are the fewest that have such a
median. ``trimmed`` leaves out a fifth of the clients at either end of every coordinate, ``median`` is the median of
every coordinate (Yin et al., ICML 2018); both give every client the same weight, so that a claimed size says nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["mean", "trimmed", "median"]
FAR_LENGTH = 20.0  # honest clients of very different data reached 8
FAR_SIZE = 100.0
FEWEST = 3  # clients that have a median to compare with
TRIMMED = 0.2  # share of the clients that are left out at either end
CHUNK = 2**18  # coordinates that are sorted at once


@dataclass
class Claims:
    """What the clients of a round claim, and which claims are beyond comparison with those of the others.

    Attributes:
        sizes: Claimed numbers of samples.
        lengths: Lengths of the updates.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, float] = field(default_factory=dict)

    def add(self, client: str, size: int, update: Tensor) -> None:
        """Enter the claims of a client."""
        self.sizes[client] = size
        self.lengths[client] = float(update.norm())

    @property
    def weights(self) -> dict[str, int]:
        """The clients' weights in the mean: their sizes, and the median size for those that claim far more."""
        usual = _usual(self.sizes)
        return {i: int(usual) if size > FAR_SIZE * usual else size for i, size in self.sizes.items()}

    @property
    def factors(self) -> dict[str, float]:
        """The factors of the updates: 1, and less for those that are far longer than the others."""
        usual = _usual(self.lengths)
        return {i: usual / length if length > FAR_LENGTH * usual else 1.0 for i, length in self.lengths.items()}

    @property
    def limited(self) -> dict[str, str]:
        """The clients whose size or update was limited, with the reason."""
        found: dict[str, list[str]] = {}
        sizes, lengths = _usual(self.sizes), _usual(self.lengths)
        for i, weight in self.weights.items():
            if weight != self.sizes[i]:
                found.setdefault(i, []).append(f"claims {self.sizes[i]:,} samples, and counts with {int(sizes):,}")
        for i, factor in self.factors.items():
            if factor != 1.0:
                far = f"an update of length {self.lengths[i]:.3g} was shortened to {lengths:.3g}"
                found.setdefault(i, []).append(far)
        return {i: "; ".join(reasons) for i, reasons in found.items()}


def _usual(values: Mapping[str, float]) -> float:
    """Return the median; infinity where too few clients answered, or most of them did not move."""
    found = median(values.values()) if len(values) >= FEWEST else 0.0
    return found or float("inf")


def weighted(models: Iterable[tuple[str, Tensor]], base: Tensor, claims: Claims) -> Tensor:
    """Return the float64 mean of local models, weighted and limited by what the clients claim.

    Args:
        models: Local models by client.
        base: The model that they were trained from.
        claims: Claims of the same clients.
    """
    weights, factors = claims.weights, claims.factors
    total, weight = torch.zeros(base.numel(), dtype=torch.float64, device=base.device), 0
    for i, w in models:
        limited = w if factors[i] == 1.0 else base + factors[i] * (w - base)
        total.add_(limited, alpha=weights[i])
        weight += weights[i]
    return total.div_(weight)


def coordinatewise(models: Tensor, aggregation: Aggregation) -> Tensor:
    """Return the trimmed mean or the median of local models (clients, parameters), coordinate by coordinate."""
    count = len(models)
    cut = min(int(TRIMMED * count + 0.5), (count - 1) // 2) if aggregation == "trimmed" else (count - 1) // 2
    parts = [
        torch.sort(part, dim=0).values[cut : count - cut].double().mean(0) for part in torch.split(models, CHUNK, dim=1)
    ]
    return torch.cat(parts).float()
