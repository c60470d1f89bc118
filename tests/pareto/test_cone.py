"""The nearest direction that raises nobody's loss: against an exhaustive oracle, and by its optimality conditions."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fupareto.pareto import Array, into_cone, project_out

from .gradients import client_gradients, exact_gradients


def split(rows: Array, forget: int) -> tuple[list[int], list[int]]:
    """The first ``forget`` gradients are targets, the others have a say."""
    return list(range(min(forget, len(rows)))), list(range(min(forget, len(rows)), len(rows)))


def nearest(target: Array, others: Array) -> Array:
    """Oracle on the vectors: the nearest point is the projection off *some* set of constraints; try all of them."""
    best = np.zeros_like(target)  # always feasible
    for count in range(len(others) + 1):
        for chosen in combinations(range(len(others)), count):
            span = others[list(chosen)]
            point = target - np.linalg.lstsq(span.T, target, rcond=1e-10)[0] @ span if count else target
            feasible = (others @ point >= -1e-9).all()
            if feasible and np.linalg.norm(point - target) < np.linalg.norm(best - target):
                best = point
    return best


def assert_shielded(rows: Array, targets: list[int], others: list[int]) -> None:
    """Feasible, reached by pushing along other gradients only, and pushed only as far as a constraint is tight."""
    coefficients = into_cone(rows @ rows.T, targets, others)
    assert coefficients.shape == (len(targets), len(rows))
    norms = np.linalg.norm(rows, axis=1)
    for u, c in zip(targets, coefficients, strict=True):
        d, push = c @ rows, np.delete(c, u)
        slack, tolerance = rows[others] @ d, 1e-7 * norms[u] * norms[others]
        assert (slack >= -tolerance).all(), "raises nobody's loss"
        assert c[u] == 1.0
        assert (push >= 0.0).all()
        assert (np.delete(c, [u, *others]) == 0.0).all(), "made of the target and the others alone"
        assert (c[others] * np.abs(slack) <= 1e-7 * norms[u] ** 2).all(), "complementary slackness"


@given(exact_gradients(most=6), st.integers(1, 3))
def test_it_is_the_nearest_point_of_the_cone(rows: Array, forget: int) -> None:
    targets, others = split(rows, forget)
    assert_shielded(rows, targets, others)
    for u, c in zip(targets, into_cone(rows @ rows.T, targets, others), strict=True):
        np.testing.assert_allclose(c @ rows, nearest(rows[u], rows[others]), atol=1e-7)


@given(client_gradients(most=40), st.integers(1, 5))
def test_clients_gradients_meet_the_optimality_conditions(rows: Array, forget: int) -> None:
    assert_shielded(rows, *split(rows, forget))


@given(client_gradients(most=12), st.integers(1, 4))
def test_no_conflict_no_change(rows: Array, forget: int) -> None:
    targets, others = split(rows, forget)
    rows = rows.copy()
    for u in targets:  # turn everybody to the targets' side, as far as one sign can
        rows[others] *= np.where(rows[others] @ rows[u] < 0, -1.0, 1.0)[:, None]
    calm = [u for u in targets if (rows[others] @ rows[u] > 0).all()]
    assume(calm)
    np.testing.assert_allclose(into_cone(rows @ rows.T, calm, others), np.eye(len(rows))[calm], atol=1e-9)


@given(exact_gradients(most=6), st.integers(0, 2**32 - 1))
def test_how_long_the_others_gradients_are_does_not_matter(rows: Array, seed: int) -> None:
    targets, others = split(rows, 1)
    factors = np.ones(len(rows))
    factors[others] = 10.0 ** np.random.default_rng(seed).uniform(-4, 4, len(others))
    scaled = rows * factors[:, None]
    plain = into_cone(rows @ rows.T, targets, others) @ rows
    np.testing.assert_allclose(into_cone(scaled @ scaled.T, targets, others) @ scaled, plain, atol=1e-6)


@given(exact_gradients(most=5), st.floats(1e-3, 1e3))
def test_a_longer_target_gives_a_direction_as_much_longer(rows: Array, factor: float) -> None:
    targets, others = split(rows, 1)
    longer = rows.copy()
    longer[0] *= factor
    plain = into_cone(rows @ rows.T, targets, others) @ rows
    found = into_cone(longer @ longer.T, targets, others) @ longer
    np.testing.assert_allclose(found, factor * plain, atol=1e-6 * factor)


def test_two_dimensions_by_hand() -> None:
    rows = np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, 1.0]])
    # g_0 conflicts with g_1 alone: it slides along g_1's boundary, onto (1, 1) / 2
    c = into_cone(rows @ rows.T, [0], [1, 2])
    np.testing.assert_allclose(c, [[1.0, 0.5, 0.0]], atol=1e-12)
    np.testing.assert_allclose(c @ rows, [[0.5, 0.5]], atol=1e-12)


def test_the_cone_keeps_what_the_null_space_gives_away() -> None:
    rows = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    K = rows @ rows.T
    np.testing.assert_allclose(into_cone(K, [0], [1, 2]) @ rows, [[1.0, 0.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(project_out(K, [0], [1, 2]) @ rows, [[0.0, 0.0, 0.0]], atol=1e-12)


def test_total_conflict_leaves_nothing() -> None:
    rows = np.array([[1.0, 2.0], [-1.0, -2.0]])
    np.testing.assert_allclose(into_cone(rows @ rows.T, [0], [1]) @ rows, [[0.0, 0.0]], atol=1e-9)


def test_duplicates_and_zeros_among_the_others_change_nothing() -> None:
    rows = np.random.default_rng(3).normal(size=(5, 4))
    more = np.vstack([rows, rows[2], 3 * rows[3], np.zeros(4), rows[2] + rows[3]])
    plain = into_cone(rows @ rows.T, [0, 1], [2, 3, 4]) @ rows
    crowded = into_cone(more @ more.T, [0, 1], [2, 3, 4, 5, 6, 7, 8]) @ more
    assert not np.allclose(plain, rows[:2])
    np.testing.assert_allclose(crowded, plain, atol=1e-9)


def test_nobody_else_and_nothing_to_forget() -> None:
    matrix = np.diag([1.0, 2.0, 0.0])
    assert into_cone(matrix, [1, 0], []).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert into_cone(matrix, [1], [2]).tolist() == [[0, 1, 0]]
    assert into_cone(matrix, [2], [0, 1]).tolist() == [[0, 0, 1]]
    assert into_cone(matrix, [], [0]).shape == (0, 3)


def test_each_target_is_shielded_as_if_it_were_alone() -> None:
    rows = np.random.default_rng(4).normal(size=(6, 5))
    K = rows @ rows.T
    together = into_cone(K, [0, 1, 2], [3, 4, 5])
    alone = np.vstack([into_cone(K, [u], [3, 4, 5]) for u in range(3)])
    np.testing.assert_array_equal(together, alone)


def test_input_is_not_modified_and_must_be_finite() -> None:
    matrix = np.array([[2.0, -1.0], [-1.0, 3.0]])
    into_cone(matrix, [0], [1])
    assert matrix.tolist() == [[2.0, -1.0], [-1.0, 3.0]]
    with pytest.raises(ValueError, match="NaN or infinity"):
        into_cone(np.array([[1.0, np.nan], [np.nan, 1.0]]), [0], [1])
