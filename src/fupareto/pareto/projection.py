"""Projection of gradients onto the orthogonal complement of other gradients, Eq. (7)."""

from collections.abc import Sequence

import numpy as np

from fupareto.pareto.gram import Array, check_gram


def project_out(gram: Array, targets: Sequence[int], span: Sequence[int]) -> Array:
    """Return the coefficients of ``g'_u = g_u - proj_{span{g_r}}(g_u)`` (Eq. 7) for every target ``u``.

    The result satisfies ``g'·g_r = 0`` for every ``r`` in the span and ``g'·g_u = ‖g'‖²``.

    The projection uses a pseudo-inverse of the *unit* gradients' Gram matrix that drops eigenvalues below 1e-12 of the
    largest: duplicate, collinear and zero gradients are allowed, and short gradients count as much as long ones. A
    second pass removes the rounding error of the first; without it gradients of similar clients (an ill-conditioned
    span) are orthogonal to a few digits only.

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
    kept = np.array(sorted({r for r in span if matrix[r, r] > 0.0}), dtype=np.intp)
    scale = 1.0 / np.sqrt(matrix.diagonal()[kept])
    inverse = np.linalg.pinv(matrix[np.ix_(kept, kept)] * scale * scale[:, None], rcond=1e-12, hermitian=True)
    rows = np.eye(len(matrix))[np.array(targets, dtype=np.intp)]
    for _ in range(2):
        along = rows @ matrix[:, kept] * scale
        rows[:, kept] -= along @ inverse * scale
    return rows


def _check_numbers(size: int, *groups: Sequence[int]) -> None:
    for group in groups:
        if any(not 0 <= i < size for i in group):
            raise ValueError(f"row numbers must be between 0 and {size - 1}, not {list(group)}")
