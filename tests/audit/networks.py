"""Many small networks trained at once, each on its own samples: attacks can be tried where the truth is known."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from fupareto.tasks.signals import Array, Indices, Outputs

CLASSES = 4
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """What networks answer to all samples, and which samples each of them was trained with."""

    outputs: list[Outputs]
    inside: Mask  # (models, samples)

    def of(self, model: int, which: Mask) -> Outputs:
        return self.outputs[model].take(np.flatnonzero(which))


def samples(n: int, rng: np.random.Generator, hard: float) -> tuple[Array, Indices]:
    """Points around class centres, of which the share ``hard`` has a label that is pure chance."""
    centres = np.random.default_rng(99).normal(size=(CLASSES, 20))
    y = rng.integers(CLASSES, size=n)
    x = centres[y] + 0.7 * rng.normal(size=(n, 20))
    return x, np.where(rng.random(n) < hard, rng.integers(CLASSES, size=n), y)


def train(x: Array, y: Indices, inside: Mask, seed: int, steps: int) -> World:
    """Train one network per row of ``inside``, all at once, on the samples that its row names."""
    models, features, width = len(inside), x.shape[1], 48
    generator = torch.Generator().manual_seed(seed)
    shapes = [(models, features, width), (models, 1, width), (models, width, CLASSES), (models, 1, CLASSES)]
    weights = [(torch.randn(s, generator=generator) / np.sqrt(s[1])).requires_grad_() for s in shapes]
    inputs = torch.tensor(x, dtype=torch.float32).expand(models, -1, -1)
    labels = torch.tensor(y).expand(models, -1)
    used = torch.tensor(inside, dtype=torch.float32)
    optimiser = torch.optim.Adam(weights, lr=0.02)

    def answer() -> torch.Tensor:
        hidden = torch.relu(torch.baddbmm(weights[1], inputs, weights[0]))
        return torch.baddbmm(weights[3], hidden, weights[2])

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small products only wait for each other
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(answer().transpose(1, 2), labels, reduction="none")
        optimiser.zero_grad()
        ((loss * used).sum(dim=1) / used.sum(dim=1)).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    torch.set_num_threads(threads)
    with torch.no_grad():
        logits = answer().double().numpy()
    return World([Outputs(z, y) for z in logits], inside)


@cache
def halves(seed: int, models: int, n: int, steps: int) -> World:
    """Every network trained with its own random half of the samples; every second sample has a random label."""
    rng = np.random.default_rng(seed)
    x, y = samples(n, rng, hard=0.5)
    inside = np.array([rng.permutation(n) < n // 2 for _ in range(models)])
    return train(x, y, inside, seed, steps)
