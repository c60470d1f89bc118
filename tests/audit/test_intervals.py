"""Intervals hold what they say, by simulation, and behave at their extremes."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from fupareto.audit.intervals import Pair, change, exact, mean_change, simultaneous, wilson

LEVELS = (0.95, 0.99, simultaneous(8))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("samples", [5, 14, 40, 200])
@pytest.mark.parametrize("truth", [0.0, 0.01, 0.05, 0.3, 0.9, 1.0])
def test_exact_intervals_hold_at_least_as_often_as_they_say(level: float, samples: int, truth: float) -> None:
    """Summed over every outcome, not simulated."""
    held = [
        binom.pmf(hits, samples, truth)
        for hits in range(samples + 1)
        if exact(hits, samples, level)[0] <= truth <= exact(hits, samples, level)[1]
    ]
    assert sum(held) >= level - 1e-9


def test_exact_ends_leave_the_tails_that_they_promise() -> None:
    low, high = exact(3, 50)
    assert 1 - binom.cdf(2, 50, low) == pytest.approx(0.025)
    assert binom.cdf(3, 50, high) == pytest.approx(0.025)


def test_no_hit_in_thirty_does_not_show_one_in_twenty() -> None:
    assert exact(0, 30)[1] > 0.05
    assert exact(0, 80)[1] < 0.05
    assert exact(0, 30) == pytest.approx((0.0, 1 - 0.025 ** (1 / 30)))
    assert exact(0, 0) == (0.0, 1.0)
    assert exact(7, 7)[1] == 1.0


def drawn(rng: np.random.Generator, before: float, after: float, together: float, samples: int, runs: int) -> Any:
    """Right answers of two models on the same samples; ``together`` is how often one draw decides both."""
    ease = rng.random((runs, samples))
    other = np.where(rng.random((runs, samples)) < together, ease, rng.random((runs, samples)))
    return (ease < before).mean(axis=1), (other < after).mean(axis=1)


@pytest.mark.parametrize("samples", [14, 40, 200])
@pytest.mark.parametrize(("before", "after"), [(0.95, 0.95), (0.9, 0.8), (0.5, 0.5), (0.99, 0.89), (0.7, 0.75)])
@pytest.mark.parametrize("together", [0.0, 0.8])
def test_changes_are_held(samples: int, before: float, after: float, together: float) -> None:
    rng = np.random.default_rng(samples)
    seen = zip(*drawn(rng, before, after, together, samples, 2000), strict=True)
    for level, least in ((0.95, 0.935), (simultaneous(8), 0.985)):
        ends = [change(Pair(float(a), float(b), samples), level) for a, b in seen]
        held = [low <= after - before <= high for low, high in ends]
        assert np.mean(held) >= least
        seen = zip(*drawn(rng, before, after, together, samples, 2000), strict=True)


@pytest.mark.parametrize("sizes", [[14] * 8, [5, 14, 30, 80, 200], [30] * 40])
@pytest.mark.parametrize("together", [0.0, 0.8])
def test_mean_changes_are_held(sizes: list[int], together: float) -> None:
    """With clients that differ in accuracy, in change and in how many samples they have."""
    rng = np.random.default_rng(len(sizes))
    starts = rng.uniform(0.75, 1.0, len(sizes))
    ends = np.clip(starts - rng.uniform(-0.05, 0.1, len(sizes)), 0, 1)
    clients = [drawn(rng, a, b, together, n, 2000) for a, b, n in zip(starts, ends, sizes, strict=True)]
    truth = float(np.mean(ends - starts))
    held = 0
    for run in range(2000):
        pairs = [Pair(float(c[0][run]), float(c[1][run]), n) for c, n in zip(clients, sizes, strict=True)]
        low, high = mean_change(pairs)
        held += low <= truth <= high
    assert held / 2000 >= 0.94


def test_the_worst_of_many_unharmed_clients_is_seldom_called_harmed() -> None:
    """Twenty clients, none of whom lost anything: at the simultaneous level few families have a lower end above 0."""
    rng = np.random.default_rng(3)
    level, harmed = simultaneous(20), 0
    for _ in range(300):
        before, after = rng.binomial(30, 0.9, (2, 20)) / 30
        harmed += any(change(Pair(float(a), float(b), 30), level)[1] < 0 for a, b in zip(before, after, strict=True))
    assert harmed / 300 <= 0.05


def test_one_sample_of_fourteen_decides_nothing() -> None:
    low, high = change(Pair(13 / 14, 12 / 14, 14))
    assert low < -0.10 < 0 < high


def test_more_samples_and_lower_levels_are_narrower() -> None:
    for widths in (
        [np.diff(change(Pair(0.9, 0.85, n)))[0] for n in (5, 14, 50, 500, 50000)],
        [np.diff(change(Pair(0.9, 0.85, 50), level))[0] for level in (0.999, 0.95, 0.5)],
        [np.diff(exact(n // 10, n))[0] for n in (10, 100, 1000)],
        [np.diff(mean_change([Pair(0.9, 0.85, 20)] * k))[0] for k in (1, 4, 16)],
    ):
        assert all(a > b for a, b in pairwise(widths))


def test_ends_grow_with_the_change() -> None:
    ends = [change(Pair(0.8, k / 40, 40)) for k in range(41)]
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(ends))
    assert all(-1 <= low <= k / 40 - 0.8 <= high <= 1 for k, (low, high) in enumerate(ends))


def test_a_mean_of_equal_clients_is_one_client_with_all_samples() -> None:
    assert mean_change([Pair(0.9, 0.8, 25)] * 4) == pytest.approx(change(Pair(0.9, 0.8, 100)))


def test_nothing_is_known_without_samples() -> None:
    assert mean_change([]) == change(Pair(1.0, 1.0, 0)) == (-1.0, 1.0)
    assert wilson(0.5, 0) == (0.0, 1.0)


@pytest.mark.parametrize("samples", [1, 10, 1000])
def test_wilson_ends_solve_the_score_equation(samples: int) -> None:
    for share in (0.0, 0.3, 1.0):
        for end in wilson(share, samples):
            if 0 < end < 1:
                assert abs(share - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / samples), rel=1e-5)


def test_simultaneous_levels() -> None:
    assert simultaneous(1) == simultaneous(0) == pytest.approx(0.95)
    assert simultaneous(10) == pytest.approx(0.995)
