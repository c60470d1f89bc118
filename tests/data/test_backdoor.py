import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fupareto.data.backdoor import Trigger, poison, shift
from fupareto.errors import UserError
from fupareto.randomness import stream

FULL = Trigger(torch.ones(3, 3, dtype=torch.bool))


def batch(count: int, channels: int = 1, side: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.zeros(count, channels, side, side)
    return x, torch.arange(count) % 10


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 28, 28), (3, 32, 32), (1, 8, 8), (1, 4, 4), (2, 5, 9)])
def test_the_patch_lies_one_pixel_from_the_lower_right_corner_on_every_channel(
    channels: int, height: int, width: int
) -> None:
    x = torch.full((2, channels, height, width), 0.25)
    stamped = FULL.stamp(x)
    changed = stamped != x
    expected = torch.zeros(height, width, dtype=torch.bool)
    expected[height - 4 : height - 1, width - 4 : width - 1] = True
    assert torch.equal(changed, expected.expand(2, channels, height, width))
    assert torch.allclose(stamped[changed], torch.tensor((255 / 1.5 / 255 - 0.5) / 0.2))
    assert not changed[..., -1, :].any()
    assert not changed[..., :, -1].any()
    assert bool((x == 0.25).all())


def test_only_the_pixels_of_the_pattern_are_written() -> None:
    trigger = Trigger(torch.eye(3, dtype=torch.bool))
    x, _ = batch(1)
    changed = (trigger.stamp(x) != 0).nonzero()[:, 2:]
    assert changed.tolist() == [[4, 4], [5, 5], [6, 6]]


def test_stamping_keeps_the_memory_format() -> None:
    x = torch.zeros(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert FULL.stamp(x).is_contiguous(memory_format=torch.channels_last)


def test_patterns_differ_between_clients_and_not_between_runs() -> None:
    patterns = [Trigger.draw(stream(0, "trigger", str(i))).pattern for i in range(20)]
    assert len({tuple(p.flatten().tolist()) for p in patterns}) > 15
    assert torch.equal(patterns[3], Trigger.draw(stream(0, "trigger", "3")).pattern)


def test_an_empty_pattern_is_drawn_again() -> None:
    class Zeros(np.random.Generator):
        calls = 0

        def uniform(self, *args: object, **keywords: object) -> object:  # type: ignore[override]
            self.calls += 1
            return np.zeros((3, 3)) if self.calls == 1 else np.full((3, 3), 0.9)

    rng = Zeros(np.random.PCG64(0))
    assert bool(Trigger.draw(rng).pattern.all())
    assert rng.calls == 2


@pytest.mark.parametrize(("classes", "by"), [(10, 5), (100, 50), (43, 21), (2, 1)])
def test_labels_move_half_way_round(classes: int, by: int) -> None:
    labels = torch.arange(classes)
    shifted = shift(labels, classes)
    assert shifted.tolist() == [(y + by) % classes for y in range(classes)]
    assert not bool((shifted == labels).any())
    assert sorted(shifted.tolist()) == labels.tolist()


def test_four_fifths_of_each_batch_are_poisoned_also_of_the_short_last_one() -> None:
    x, y = batch(450)
    px, py = poison(x, y, FULL, 10, 0.8, 200)
    expected = torch.cat([torch.arange(n) < int(0.8 * n) for n in (200, 200, 50)])
    assert torch.equal(px.flatten(1).any(dim=1), expected)
    assert torch.equal(py, torch.where(expected, (y + 5) % 10, y))
    assert not bool(x.any())
    assert torch.equal(y, torch.arange(450) % 10)


@given(
    count=st.integers(1, 60),
    portion=st.floats(0, 1),
    size=st.integers(1, 25),
)
def test_the_rule_of_each_batch(count: int, portion: float, size: int) -> None:
    x, y = batch(count)
    px, py = poison(x, y, FULL, 10, portion, size)
    for start in range(0, count, size):
        length = min(size, count - start)
        hits = int(portion * length)
        marked = px[start : start + length].flatten(1).any(dim=1).tolist()
        assert marked == [True] * hits + [False] * (length - hits)
        assert ((py != y)[start : start + length]).tolist() == marked


def test_portion_one_poisons_all() -> None:
    x, y = batch(7)
    px, py = poison(x, y, FULL, 10, 1.0, 3)
    assert torch.equal(px, FULL.stamp(x))
    assert torch.equal(py, shift(y, 10))


def test_mistakes_are_named() -> None:
    x, y = batch(4)
    with pytest.raises(UserError, match="4x4"):
        FULL.stamp(torch.zeros(1, 1, 3, 8))
    with pytest.raises(UserError, match=r"\(N, C, H, W\)"):
        poison(torch.zeros(4, 20), y, FULL, 10, 0.8, 2)
    with pytest.raises(UserError, match="between 0 and 1"):
        poison(x, y, FULL, 10, 1.5, 2)
    with pytest.raises(UserError, match="batch size"):
        poison(x, y, FULL, 10, 0.5, 0)
    for pattern in (torch.ones(3, 3), torch.ones(2, 2, dtype=torch.bool)):
        with pytest.raises(ValueError, match=r"\(3, 3\) bool"):
            Trigger(pattern)
