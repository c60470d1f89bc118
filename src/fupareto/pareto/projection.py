"""Projection of gradients onto the orthogonal complement of other gradients, Eq. (7)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack

from fupareto.pareto.gram import Array, check_gram

LEAST = 1e-12  # square of what must be left of a unit gradient, beside those before it, for it to count


def project_out(gram: Array, targets: Sequence[int], span: Sequence[int]) -> Array:
    """Return the coefficients of ``g'_u = g_u - proj_{span{g_r}}(g_u)`` (Eq. 7) for every target ``u``.

    The result satisfies ``g'·g_r = 0`` for every ``r`` in the span and ``g'·g_u = ‖g'‖²``.

    The projection uses a Cholesky factor of the *unit* gradients' Gram matrix, with pivots: gradients that depend on
    those before them are left out, so duplicate, collinear and zero gradients are allowed, and short gradients count as
    much as long ones. A second pass removes the rounding error of the first; without it gradients of similar clients
    (an ill-conditioned span) are orthogonal to a few digits only.

    Args:
        gram: Gram matrix of all gradients (m, m).
        targets: Row numbers of the gradients to project.
        span: Row numbers of the gradients to project out.

    Returns:
        Coefficients over the m gradients (len(targets), m), one row per target.

    >>> project_out(np.array([[1.0, 1.0], [1.0, 2.0]]), targets=[1], span=[0]).tolist()
    [[-1.0, 1.0]]
    """
    matrix = check_gram(gram)
    _check_numbers(len(matrix), targets, span)
    basis, factor = _independent(matrix, sorted(set(span)))
    scale = 1.0 / np.sqrt(matrix.diagonal()[basis])
    rows = np.zeros((len(targets), len(matrix)))
    rows[np.arange(len(targets)), np.array(targets, dtype=np.intp)] = 1.0
    for _ in range(2 if len(basis) else 0):
        along = rows @ matrix[:, basis] * scale
        rows[:, basis] -= cho_solve((factor, False), along.T, overwrite_b=True, check_finite=False).T * scale
    return rows


def _independent(matrix: Array, span: Sequence[int]) -> tuple[NDArray[np.intp], Array]:
    """Return row numbers of independent gradients with the same span, and the factor of their unit Gram matrix."""
    rows = np.array([r for r in span if matrix[r, r] > 0.0], dtype=np.intp)
    if not len(rows):
        return rows, np.zeros((0, 0))
    scale = 1.0 / np.sqrt(matrix.diagonal()[rows])
    found, pivots, rank, _ = lapack.dpstrf(matrix[np.ix_(rows, rows)] * scale * scale[:, None], tol=LEAST)
    return rows[pivots[:rank] - 1], np.triu(found[:rank, :rank])


def _check_numbers(size: int, *groups: Sequence[int]) -> None:
    for group in groups:
        if any(not 0 <= i < size for i in group):
            raise ValueError(f"row numbers must be between 0 and {size - 1}, not {list(group)}")
