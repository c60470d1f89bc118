from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fupareto.pareto import Array, accepted, highest_acceptable, trial_steps


def sufficient_decrease(before: Array, after: Array, *slopes_and_step: Any, **rule: Any) -> Any:
    return accepted(after, highest_acceptable(before, *slopes_and_step, **rule))


@pytest.mark.parametrize(
    ("s", "enlarged"),
    [
        (1, (2.0, 1.0, 0.5)),
        (3, (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)),
        (5, (32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)),
    ],
)
def test_steps_of_improvement_and_expansion(s: int, enlarged: tuple[float, ...]) -> None:
    assert trial_steps(1.0, s, enlarge=True) == enlarged
    assert trial_steps(1.0, s, enlarge=False) == enlarged[s:]


@given(st.floats(1e-6, 10.0), st.integers(0, 8), st.booleans())
def test_steps_halve_from_the_upper_to_the_lower_bound(eta: float, s: int, enlarge: bool) -> None:
    steps = trial_steps(eta, s, enlarge)
    assert steps[0] == (eta * 2**s if enlarge else eta)
    assert steps[-1] == eta / 2**s
    assert all(b == a / 2 for a, b in pairwise(steps))


@pytest.mark.parametrize(("eta", "s"), [(0.0, 3), (-0.1, 3), (float("nan"), 3), (float("inf"), 3), (0.1, -1)])
def test_senseless_ranges_are_refused(eta: float, s: int) -> None:
    with pytest.raises(ValueError, match="must"):
        trial_steps(eta, s, enlarge=True)


def test_descent_asks_every_client_for_its_share() -> None:
    before, slopes = np.array([1.0, 1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0, 2.0])
    after = np.array([0.7, 0.9, 0.95, 1.05])  # the bound is 1 - .1 * .5 * 2 = .9
    assert sufficient_decrease(before, after, slopes, step=0.5, beta=0.1).tolist() == [
        True,
        True,
        False,
        False,
    ]


def test_only_the_printed_rule_accepts_a_rise() -> None:
    before, slopes, after = np.ones(3), np.full(3, 2.0), np.array([0.8, 1.05, 1.2])
    descent = sufficient_decrease(before, after, slopes, 0.5, beta=0.1, rule="descent")
    printed = sufficient_decrease(before, after, slopes, 0.5, beta=0.1, rule="printed")
    assert descent.tolist() == [True, False, False]
    assert printed.tolist() == [True, True, False]


def test_default_is_descent_with_small_beta() -> None:
    before, slopes = np.ones(2), np.ones(2)
    after = np.array([1.0 - 1.1e-4, 1.0 - 0.9e-4])
    assert sufficient_decrease(before, after, slopes, step=1.0).tolist() == [True, False]


def test_slack_forgives_clients_with_nothing_left_to_lose() -> None:
    before, slopes, after = np.zeros(3), np.zeros(3), np.array([0.0, 5e-7, 2e-6])
    assert sufficient_decrease(before, after, slopes, 1.0).tolist() == [True, False, False]
    assert sufficient_decrease(before, after, slopes, 1.0, slack=1e-6).tolist() == [True, True, False]
    per_client = np.array([0.0, 0.0, 1e-5])
    assert sufficient_decrease(before, after, slopes, 1.0, slack=per_client).tolist() == [True, False, True]


@pytest.mark.parametrize("rule", ["descent", "printed"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_no_number_is_never_accepted(rule: str, bad: float) -> None:
    accepted = sufficient_decrease(
        np.array([1.0, 1.0]),
        np.array([bad, 0.0]),
        np.ones(2),
        1.0,
        rule="descent" if rule == "descent" else "printed",
        slack=np.inf,
    )
    assert accepted.tolist() == [False, True]


@given(st.floats(0.1, 5.0), st.floats(0.1, 10.0))
def test_quadratic_accepts_exactly_the_steps_of_theory(curvature: float, start: float) -> None:
    """F = a x²/2, d = g: F(x - ηg) ≤ F(x) - β η g² if and only if η ≤ 2(1 - β)/a."""
    beta, limit = 0.25, 2 * 0.75 / curvature
    steps = np.array([0.1, 0.9, 0.999, 1.001, 1.5]) * limit
    slope = np.array([(curvature * start) ** 2])
    verdicts = [
        sufficient_decrease(
            np.array([curvature * start**2 / 2]),
            np.array([curvature * (start - step * curvature * start) ** 2 / 2]),
            slope,
            float(step),
            beta,
        )[0]
        for step in steps
    ]
    assert verdicts == [True, True, True, False, False]


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(KeyError):
        sufficient_decrease(np.ones(1), np.ones(1), np.ones(1), 1.0, rule="armijo")
