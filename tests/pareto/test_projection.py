import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fupareto.pareto import Array, project_out

from .gradients import client_gradients, exact_gradients


def split(rows: Array, forget: int) -> tuple[list[int], list[int]]:
    """The first ``forget`` gradients are targets, the others the span."""
    return list(range(forget)), list(range(forget, len(rows)))


def lstsq_residual(target: Array, span: Array) -> Array:
    """Oracle on the vectors: what a least-squares fit of the target by the span leaves over."""
    if len(span) == 0:
        return target
    fitted = np.linalg.lstsq(span.T, target, rcond=1e-10)[0]
    return np.asarray(target - fitted @ span)


def assert_projected(rows: Array, targets: list[int], span: list[int]) -> None:
    coefficients = project_out(rows @ rows.T, targets, span)
    assert coefficients.shape == (len(targets), len(rows))
    norms = np.linalg.norm(rows, axis=1)
    for u, c in zip(targets, coefficients, strict=True):
        left = c @ rows
        assert (np.abs(rows[span] @ left) <= 1e-9 * norms[u] * norms[span]).all(), "orthogonal to the span"
        assert rows[u] @ left == pytest.approx(left @ left, abs=1e-9 * norms[u] ** 2), "g'.g_u = |g'|^2"
        others = [i for i in range(len(rows)) if i != u and i not in span]
        assert c[u] == 1.0 or u in span
        assert (c[others] == 0.0).all(), "made of the target and the span alone"


@given(exact_gradients(most=8), st.integers(1, 4))
def test_degenerate_gradients_end_orthogonal(rows: Array, forget: int) -> None:
    targets, span = split(rows, min(forget, len(rows)))
    assert_projected(rows, targets, span)
    for u, c in zip(targets, project_out(rows @ rows.T, targets, span), strict=True):
        np.testing.assert_allclose(c @ rows, lstsq_residual(rows[u], rows[span]), atol=1e-9)


@given(client_gradients(most=60), st.integers(1, 5))
def test_clients_gradients_end_orthogonal(rows: Array, forget: int) -> None:
    assert_projected(rows, *split(rows, min(forget, len(rows))))


@given(client_gradients(most=60), st.integers(1, 5))
def test_projecting_twice_is_projecting_once(rows: Array, forget: int) -> None:
    targets, span = split(rows, min(forget, len(rows)))
    once = project_out(rows @ rows.T, targets, span) @ rows
    again = np.vstack([once, rows[span]])
    twice = project_out(again @ again.T, targets, span) @ again
    np.testing.assert_allclose(twice, once, atol=1e-9 * np.linalg.norm(rows[targets], axis=1).max())


def similar_clients(gap: float) -> Array:
    rng = np.random.default_rng(5)
    common = rng.normal(size=300)
    return np.vstack([rng.normal(size=(2, 300)) + 0.5 * common, common + gap * rng.normal(size=(6, 300))])


@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-4, 1e-5])
def test_similar_clients_are_projected_to_the_last_digits(gap: float) -> None:
    """The condition number of the span grows as the inverse square of the gap: 1e10 for the last."""
    rows = similar_clients(gap)
    left = project_out(rows @ rows.T, [0, 1], range(2, 8)) @ rows
    leak = np.abs(left @ rows[2:].T) / np.linalg.norm(left, axis=1)[:, None] / np.linalg.norm(rows[2:], axis=1)
    assert leak.max() < 1e-10


def test_short_gradients_are_respected_as_much_as_long_ones() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 40))
    scaled = rows * np.array([1.0, 1e-9, 1e3, 1.0, 1e-5])[:, None]
    left = project_out(scaled @ scaled.T, [0], [1, 2, 3, 4]) @ scaled
    np.testing.assert_allclose(left[0], lstsq_residual(rows[0], rows[1:]), atol=1e-9)


def test_duplicates_and_zeros_in_the_span_change_nothing() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(4, 30))
    more = np.vstack([rows, rows[2], -3 * rows[3], np.zeros(30), rows[2] + rows[3]])
    plain = project_out(rows @ rows.T, [0, 1], [2, 3]) @ rows
    crowded = project_out(more @ more.T, [0, 1], [2, 3, 4, 5, 6, 7, 2]) @ more
    np.testing.assert_allclose(crowded, plain, atol=1e-12)


def test_span_of_zeros_and_empty_span_leave_the_target() -> None:
    matrix = np.diag([1.0, 2.0, 0.0])
    assert project_out(matrix, [1, 0], []).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert project_out(matrix, [1], [2]).tolist() == [[0, 1, 0]]
    assert project_out(matrix, [2], [0, 1]).tolist() == [[0, 0, 1]]
    assert project_out(matrix, [], [0]).shape == (0, 3)


def test_target_inside_the_span_vanishes() -> None:
    rows = np.random.default_rng(2).normal(size=(4, 10))
    rows[0] = rows[1] - 2 * rows[3]
    coefficients = project_out(rows @ rows.T, [0, 2], [1, 2, 3])
    np.testing.assert_allclose(coefficients[0], [1, -1, 0, 2], atol=1e-12)
    np.testing.assert_allclose(coefficients @ rows, 0, atol=1e-12)


def test_input_is_not_modified() -> None:
    matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    project_out(matrix, [0], [1])
    assert matrix.tolist() == [[2.0, 1.0], [1.0, 3.0]]


@pytest.mark.parametrize(("targets", "span"), [([3], [0]), ([0], [-1]), ([0], [1, 7])])
def test_unknown_rows_are_refused(targets: list[int], span: list[int]) -> None:
    with pytest.raises(ValueError, match="between 0 and 2"):
        project_out(np.eye(3), targets, span)


def test_non_finite_gram_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        project_out(np.array([[1.0, np.nan], [np.nan, 1.0]]), [0], [1])
