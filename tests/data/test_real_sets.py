"""The published sets as their authors released them; skipped where they are not on disk ($FUPARETO_DATA)."""

import pytest
import torch

from fupareto.data import load, partition, status
from fupareto.randomness import stream

SETS = {
    "fashion-mnist": (70_000, (1, 28, 28), 10, 60_000, 7_000),
    "cifar10": (60_000, (3, 32, 32), 10, 50_000, 6_000),
    "cifar100": (60_000, (3, 32, 32), 100, 50_000, 600),
    "gtsrb": (51_839, (3, 32, 32), 43, 39_209, None),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                status()[name] == "missing",
                reason=f"the real {name} is not on disk; set FUPARETO_DATA or run `fupareto data get {name}`",
            ),
        )
        for name in SETS
    ],
)
def test_the_real_set(name: str) -> None:
    size, shape, classes, train, each = SETS[name]
    data = load(name)
    assert data.x.shape == (size, *shape)
    assert data.classes == classes
    assert data.train_fraction == train / size
    counts = torch.bincount(data.y, minlength=classes)
    assert len(counts) == classes
    assert int(counts.min()) > 0
    if each is not None:
        assert counts.tolist() == [each] * classes
    if name.startswith("cifar"):
        # The field's constants for the deviation are smaller than the deviation over all pixels.
        assert data.x.mean(dim=(0, 2, 3)).abs().max() < 0.1
        assert (data.x.std(dim=(0, 2, 3)) - 1.25).abs().max() < 0.15
    else:
        assert (float(data.x.min()), float(data.x.max())) == (0.0, 1.0)
    parts = partition(data.y.numpy(), 10, "dirichlet", stream(0, "partition"), alpha=0.1)
    assert sum(map(len, parts)) == size
    assert min(map(len, parts)) >= classes
