import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fupareto.pareto import Array, guidance, min_norm
from fupareto.pareto.direction import common_descent, equal_norms, length

from .gradients import client_gradients, exact_gradients

seeds = st.integers(0, 2**32 - 1)


@given(client_gradients(most=20), seeds)
def test_length_is_the_norm_of_the_combination(rows: Array, seed: int) -> None:
    coefficients = np.random.default_rng(seed).normal(size=len(rows))
    expected = np.linalg.norm(coefficients @ rows)
    assert length(rows @ rows.T, coefficients) == pytest.approx(expected, rel=1e-6, abs=1e-6 * np.abs(rows).max())


def test_length_of_nothing_is_zero_even_if_rounding_says_less() -> None:
    assert length(np.array([[1.0, 1.0], [1.0, 1.0 - 1e-15]]), np.array([1.0, -1.0])) == 0.0
    assert length(np.zeros((2, 2)), np.array([3.0, 4.0])) == 0.0


@given(client_gradients(most=20), seeds)
def test_equal_norms_bring_live_gradients_to_their_mean_norm(rows: Array, seed: int) -> None:
    live = np.random.default_rng(seed).random(len(rows)) < 0.7
    scale = equal_norms(rows @ rows.T, live)
    norms = np.linalg.norm(rows, axis=1)
    assert (scale[~live] == 0).all()
    if live.any():
        np.testing.assert_allclose((scale * norms)[live], norms[live].mean(), rtol=1e-9)


@given(client_gradients(most=12), st.permutations(range(12)), st.floats(1e-3, 1e3))
def test_equal_norms_follow_the_order_and_not_the_unit(rows: Array, order: list[int], factor: float) -> None:
    turn = [i for i in order if i < len(rows)]
    gram, live = rows @ rows.T, np.ones(len(rows), dtype=bool)
    scale = equal_norms(gram, live)
    np.testing.assert_allclose(equal_norms(gram[np.ix_(turn, turn)], live), scale[turn], rtol=1e-12)
    np.testing.assert_allclose(equal_norms(gram * factor**2, live), scale, rtol=1e-9)


def test_dead_gradients_neither_divide_by_zero_nor_count_in_the_mean() -> None:
    gram = np.diag([4.0, 0.0, -1e-20, 16.0])
    live = np.array([True, False, False, True])
    assert equal_norms(gram, live).tolist() == [1.5, 0.0, 0.0, 0.75]
    assert equal_norms(gram, np.zeros(4, dtype=bool)).tolist() == [0.0] * 4


@given(exact_gradients(), seeds)
def test_common_descent_descends_on_every_objective_of_the_hull(rows: Array, seed: int) -> None:
    """Objectives are combinations of gradients, as many as there are, dependent or not."""
    rng = np.random.default_rng(seed)
    hull = rng.integers(-2, 3, size=(rng.integers(1, 8), len(rows))).astype(np.float64)
    c = common_descent(rows @ rows.T, hull)
    d, objectives = c @ rows, hull @ rows
    room = 1e-8 * max(1.0, float(np.abs(objectives).max()) ** 2)
    assert (objectives @ d >= d @ d - room).all()
    assert d @ d <= (objectives**2).sum(axis=1).min() + room
    assert np.linalg.norm(d) <= np.linalg.norm(objectives.mean(axis=0)) + room


@given(client_gradients(most=12), st.permutations(range(12)))
def test_common_descent_does_not_depend_on_the_order_of_objectives(rows: Array, order: list[int]) -> None:
    gram, turn = rows @ rows.T, [i for i in order if i < len(rows)]
    identity = np.eye(len(rows))
    d, turned = common_descent(gram, identity) @ rows, common_descent(gram, identity[turn]) @ rows
    assert np.linalg.norm(d - turned) <= 1e-6 * np.abs(rows).max()


@given(client_gradients(most=12))
def test_gradients_themselves_are_the_plain_min_norm_problem(rows: Array) -> None:
    gram = rows @ rows.T
    np.testing.assert_array_equal(common_descent(gram, np.eye(len(rows))), min_norm(gram))


@given(client_gradients(most=12), seeds)
def test_one_more_objective_only_shortens_the_direction(rows: Array, seed: int) -> None:
    h = guidance(np.random.default_rng(seed).random(len(rows)) + 0.1, np.ones(len(rows)))
    if h is None:
        return
    gram, hull = rows @ rows.T, np.eye(len(rows))
    alone = length(gram, common_descent(gram, hull))
    assert length(gram, common_descent(gram, np.vstack([hull, h]))) <= alone + 1e-7 * np.abs(rows).max()


def test_conflict_without_a_way_out_has_no_direction() -> None:
    rows = np.array([[1.0, 2.0], [-2.0, -4.0]])
    gram = rows @ rows.T
    assert length(gram, common_descent(gram, np.eye(2))) < 1e-7
    assert length(gram, common_descent(gram, np.array([[1.0, 0.0], [-1.0, 0.0]]))) < 1e-15  # weights have rounding
