from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fupareto.pareto import Array, active_set, min_norm

from .gradients import client_gradients, exact_gradients, guided_gradients
from .wolfe import brute_force, lawson_hanson, wolfe


def direction(rows: Array) -> Array:
    return min_norm(rows @ rows.T) @ rows


def largest(rows: Array) -> float:
    return float((rows**2).sum(axis=1).max())


def assert_optimal(rows: Array, weights: Array) -> None:
    """On the simplex, and KKT: d·g_i ≥ ‖d‖² for all, equal where the weight is positive."""
    assert weights.shape == (len(rows),)
    assert (weights >= 0.0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    d = weights @ rows
    norms = np.linalg.norm(rows, axis=1)
    gaps = rows @ d - d @ d
    rounding = 1e-12 * norms * norms[weights > 0].max() + 1e-12 * (d @ d)
    assert (gaps >= -rounding).all()
    # Complementarity in the form that does not depend on how a tiny weight is told from zero.
    assert (np.abs(weights * gaps) <= rounding).all()


@given(guided_gradients())
def test_every_objective_descends_and_kkt_holds(rows: Array) -> None:
    assert_optimal(rows, min_norm(rows @ rows.T))


@given(exact_gradients())
def test_degenerate_gradients_satisfy_kkt(rows: Array) -> None:
    assert_optimal(rows, min_norm(rows @ rows.T))


@pytest.mark.parametrize("objectives", [1, 2, 3, 21, 51, 101, 200])
def test_exactly_singular_problems_of_every_size_agree_with_wolfe(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    rows = rng.normal(size=(objectives, 60)) + 0.4 * rng.normal(size=60)
    if objectives > 1:
        rows[-1] = rng.normal(size=objectives - 1) @ rows[:-1] / np.sqrt(objectives)
    weights = min_norm(rows @ rows.T)
    assert_optimal(rows, weights)
    np.testing.assert_allclose(weights @ rows, wolfe(rows) @ rows, atol=1e-7)


@given(exact_gradients(most=5))
def test_agrees_with_brute_force_over_faces(rows: Array) -> None:
    expected = brute_force(rows) @ rows
    np.testing.assert_allclose(direction(rows), expected, atol=1e-6)
    np.testing.assert_allclose(wolfe(rows) @ rows, expected, atol=1e-6)


@settings(max_examples=50)
@given(client_gradients(most=40))
def test_agrees_with_wolfe(rows: Array) -> None:
    np.testing.assert_allclose(direction(rows), wolfe(rows) @ rows, atol=1e-6 * np.sqrt(largest(rows)))


@settings(max_examples=50)
@given(guided_gradients())
def test_agrees_with_lawson_and_hanson(rows: Array) -> None:
    expected = lawson_hanson(rows) @ rows
    np.testing.assert_allclose(direction(rows), expected, atol=1e-6 * np.sqrt(largest(rows)))


@pytest.mark.parametrize(("clients", "parameters", "common"), [(700, 2000, 0.1), (700, 2000, 1.0), (800, 150, 0.3)])
def test_many_clients_with_large_and_small_active_sets(clients: int, parameters: int, common: float) -> None:
    """Nearly orthogonal gradients have almost all weights positive; more clients than dimensions have few."""
    rng = np.random.default_rng(clients)
    rows = rng.normal(size=(clients, parameters)) + common * rng.normal(size=parameters)
    rows[5], rows[-1] = rows[4], rng.normal(size=clients - 1) @ rows[:-1] / clients
    weights = min_norm(rows @ rows.T)
    assert_optimal(rows, weights)
    np.testing.assert_allclose(weights @ rows, lawson_hanson(rows) @ rows, atol=1e-9 * np.sqrt(largest(rows)))


def test_exact_where_block_pivoting_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second phase alone finds the same point, from nothing and from a wrong active set."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 25)) + 0.5 * rng.normal(size=25)
    rows[7] = rows[3]
    expected = direction(rows)
    for start in (np.zeros(40), np.ones(40), rng.random(40) * (rng.random(40) < 0.5)):
        monkeypatch.setattr(active_set, "_pivoted", lambda matrix, target, start=start: start)
        assert_optimal(rows, min_norm(rows @ rows.T))
        np.testing.assert_allclose(direction(rows), expected, atol=1e-12)


@given(guided_gradients(), st.randoms(use_true_random=False))
def test_order_of_objectives_does_not_matter(rows: Array, random: Random) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)
    np.testing.assert_allclose(direction(rows[order]), direction(rows), atol=1e-6 * np.linalg.norm(rows, axis=1).min())


@given(client_gradients(), st.integers(-60, 60))
def test_scale_of_all_gradients_does_not_matter(rows: Array, exponent: int) -> None:
    c = 2.0**exponent
    weights, scaled = min_norm(rows @ rows.T), min_norm((c * rows) @ (c * rows).T)
    np.testing.assert_allclose(scaled, weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scaled @ (c * rows), c * (weights @ rows), rtol=0, atol=c * 1e-11)


@given(exact_gradients(), st.integers(0, 5))
def test_duplicating_an_objective_does_not_change_the_direction(rows: Array, which: int) -> None:
    doubled = np.vstack([rows, rows[which % len(rows)]])
    np.testing.assert_allclose(direction(doubled), direction(rows), atol=1e-6)


@given(exact_gradients())
def test_no_point_of_the_hull_is_shorter(rows: Array) -> None:
    shortest = np.linalg.norm(direction(rows))
    for weights in np.random.default_rng(0).dirichlet(np.ones(len(rows)), size=20):
        assert shortest <= np.linalg.norm(weights @ rows) + 1e-9


@given(st.integers(0, 10**6), st.floats(-3, 3))
def test_two_objectives_closed_form(seed: int, decades: float) -> None:
    a, b = np.random.default_rng(seed).normal(size=(2, 6))
    b *= 10.0**decades
    assume(np.linalg.norm(a - b) > 1e-3)
    first = np.clip((b - a) @ b / ((b - a) @ (b - a)), 0.0, 1.0)
    np.testing.assert_allclose(min_norm(np.array([[a @ a, a @ b], [a @ b, b @ b]])), [first, 1 - first], atol=1e-12)


def test_antiparallel_objectives_have_no_common_descent() -> None:
    rows = np.array([[3.0, -1.0, 2.0], [-6.0, 2.0, -4.0]])
    np.testing.assert_allclose(min_norm(rows @ rows.T), [2 / 3, 1 / 3], atol=1e-14)
    np.testing.assert_allclose(direction(rows), 0.0, atol=1e-14)


@pytest.mark.parametrize("decades", [0, 2, 6])
def test_orthogonal_objectives_weigh_inverse_squares(decades: int) -> None:
    squares = np.logspace(-decades, 0, 7) ** 2
    expected = (1 / squares) / (1 / squares).sum()
    np.testing.assert_allclose(min_norm(np.diag(squares)), expected, rtol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_norms_many_decades_apart_keep_relative_accuracy(seed: int) -> None:
    """Unscaled gradients of nearly forgotten clients: each must descend by its own measure."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(100, 150)) + rng.normal(size=150)
    rows *= 10.0 ** (-6 * rng.random((100, 1)))
    d = direction(rows)
    cosines = rows @ d / np.linalg.norm(rows, axis=1) / np.linalg.norm(d)
    assert (cosines >= np.linalg.norm(d) / np.linalg.norm(rows, axis=1) - 1e-8).all()


def test_collinear_objectives_follow_the_shortest() -> None:
    rows = np.outer([5.0, 1.0, 2.0], [1.0, 2.0, 2.0])
    np.testing.assert_allclose(min_norm(rows @ rows.T), [0.0, 1.0, 0.0], atol=1e-14)


def test_one_objective_has_all_weight() -> None:
    assert min_norm(np.array([[7.0]])).tolist() == [1.0]


def test_zero_gradients_take_all_weight() -> None:
    assert min_norm(np.diag([2.0, 0.0, 1.0])).tolist() == [0.0, 1.0, 0.0]
    assert min_norm(np.zeros((4, 4))).tolist() == [0.25] * 4


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_gram_is_refused(bad: float) -> None:
    matrix = np.eye(3)
    matrix[0, 2] = bad
    with pytest.raises(ValueError, match=r"NaN or infinity in rows \[0\]"):
        min_norm(matrix)


@pytest.mark.parametrize("shape", [(0, 0), (2, 3), (4,), (2, 2, 2)])
def test_shapes_that_are_no_gram_matrix_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="square and not empty"):
        min_norm(np.ones(shape))
