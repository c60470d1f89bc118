"""The way gone: where it is known, what it does not depend on, and how often its interval holds the truth."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fupareto.audit.estimates import effective
from fupareto.audit.way import Estimate, proportion, ratio, way

VALUES = st.floats(-100, 100)
ERRORS = st.floats(1e-3, 0.5)


@given(VALUES, VALUES, ERRORS, ERRORS)
def test_nothing_is_gone_at_the_start_and_everything_at_the_end(
    first: float, last: float, error: float, other: float
) -> None:
    assume(abs(first - last) > 4 * np.hypot(error, other))
    initial, retrained = Estimate(first, error), Estimate(last, other)
    assert way(initial, initial, retrained).value == 0
    assert way(initial, retrained, retrained).value == pytest.approx(1)


@given(VALUES, VALUES, VALUES, ERRORS, st.floats(0.1, 10), st.booleans(), VALUES)
def test_units_and_directions_do_not_matter(
    first: float, own: float, last: float, error: float, factor: float, turned: bool, shift: float
) -> None:
    assume(abs(first - last) > 8 * error)
    scale = -factor if turned else factor
    three = [Estimate(value, error) for value in (first, own, last)]
    moved = [Estimate(scale * e.value + shift, abs(scale) * e.error) for e in three]
    one, other = way(*three), way(*moved)
    assert one.value is not None
    assert [other.value, other.low, other.high] == pytest.approx([one.value, one.low, one.high], rel=1e-4, abs=1e-4)


def test_further_from_the_start_is_a_longer_way() -> None:
    ways = [way(Estimate(0.9, 0.02), Estimate(v, 0.02), Estimate(0.3, 0.02)).value for v in (0.9, 0.7, 0.4, 0.2)]
    assert ways == sorted(ways, key=lambda value: value or 0.0)


def test_there_is_no_way_where_the_ends_are_alike() -> None:
    found = way(Estimate(0.5, 0.05), Estimate(0.1, 0.05), Estimate(0.45, 0.05))
    assert (found.value, found.low, found.high) == (None, None, None)
    assert found.reason
    assert ratio(Estimate(0.3, 0.01), Estimate(0.02, 0.03)).value is None


@pytest.mark.parametrize("samples", [60, 200])
@pytest.mark.parametrize("truth", [(0.9, 0.9, 0.3), (0.9, 0.35, 0.3), (0.7, 0.5, 0.02), (0.95, 0.02, 0.01)])
def test_the_interval_holds_the_truth(truth: tuple[float, float, float], samples: int) -> None:
    rng = np.random.default_rng(0)
    first, own, last = truth
    held = 0
    for _ in range(300):
        shares = rng.binomial(samples, truth) / samples
        found = way(*(proportion(share, samples) for share in shares))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= (first - own) / (first - last) <= found.high
    assert held >= 0.92 * 300


def test_the_interval_of_a_ratio_holds_the_truth() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        above, below = rng.exponential(0.06, 150), rng.exponential(0.04, 150)
        found = ratio(*(Estimate(x.mean(), x.std(ddof=1) / np.sqrt(len(x))) for x in (above, below)))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.5 <= found.high
    assert held >= 0.92 * 300


def test_a_share_of_nothing_is_not_certain() -> None:
    assert proportion(0.0, 50).error > 0.01
    assert proportion(0.0, 0).error == 0.5
    assert proportion(0.5, 10_000).error == pytest.approx(0.005, rel=0.01)


def test_a_forget_client_without_a_mark_does_not_count_among_the_tries() -> None:
    def client(asr: float | None, tries: int) -> dict[str, object]:
        return {"side": "forget", "asr": asr, "asr_samples": tries, "accuracy": 0.9, "samples": 30}

    both = {"clients": {"1": client(0.1, 100), "2": client(0.2, 100), "4": {"side": "retained", "asr": None}}}
    unmarked = {"clients": {**both["clients"], "3": client(None, 0)}}
    assert effective(unmarked, "asr") == effective(both, "asr") == pytest.approx(200)
    assert effective(unmarked, "forget_acc") == pytest.approx(90)
    assert effective({"clients": {"1": client(0.1, 0)}}, "asr") == 0
