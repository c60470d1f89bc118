"""What is left of a gradient once everything that touches other clients is taken out?"""

from collections.abc import Sequence

import numpy as np

from fupareto.pareto.gram import Array, check_gram


def project_out(gram: Array, targets: Sequence[int], span: Sequence[int]) -> Array:
    """Return the coefficients of ``g'_u = g_u - proj_{span{g_r}}(g_u)`` (Eq. 7) for every target ``u``.

    ``gram`` (m, m) is of all gradients; ``targets`` and ``span`` are row numbers in it. Row ``k`` of the
    result (len(targets), m) holds ``g'`` of target ``k`` as coefficients over the m gradients as they came,
    so ``g'·g_r = 0`` for every ``r`` in the span and ``g'·g_u = ‖g'‖²``.

    The span is described by a pseudo-inverse of the *unit* gradients' Gram matrix that drops eigenvalues
    below 1e-12 of the largest: duplicate, collinear and zero gradients are harmless, and a short gradient
    is respected as much as a long one. The second pass removes what rounding left of the first; without it
    similar clients (an ill-conditioned span) stay several digits off orthogonal.

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
            raise ValueError(f"row numbers {list(group)} are not all between 0 and {size - 1}")
