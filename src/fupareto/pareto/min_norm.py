"""Min-norm point of the convex hull of gradients (MGDA)."""

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import nnls

from fupareto.pareto.gram import Array, check_gram


def min_norm(gram: Array) -> Array:
    """Return ``λ* = argmin ½ λᵀ K λ`` over ``λ ≥ 0, Σ λ = 1`` (Eq. 5, MGDA).

    The direction ``d = Σ λ_i g_i`` then satisfies ``d·g_i ≥ ‖d‖²`` for every objective, with equality where
    ``λ_i > 0``: a step along ``-d`` lowers all of them, or ``d = 0`` and the point is Pareto stationary.

    Solved exactly as a least-squares problem. With ``x_i = λ_i ‖g_i‖`` and ``RᵀR`` the Gram matrix of the
    unit gradients, ``min ‖R x‖² + (Σ x_i / ‖g_i‖ - 1)²`` over ``x ≥ 0`` has its solution on the ray of
    ``λ*``, for every weight of the second term. Unit gradients preserve the relative accuracy of short ones, and the
    convergence of the active-set solver when norms differ by orders of magnitude.

    A zero gradient makes the min-norm point zero, with all weight on such rows: the caller should remove them. ``K``
    may be singular (with the guidance gradient it always is): ``d`` is unique, ``λ`` is not.

    Args:
        gram: Gram matrix ``K`` of the gradients (m, m).

    Returns:
        The weights ``λ*`` (m,).

    >>> min_norm(np.diag([1.0, 4.0])).round(6).tolist()
    [0.8, 0.2]
    """
    matrix = check_gram(gram)
    norms = np.sqrt(np.clip(matrix.diagonal(), 0.0, None))
    zero = norms == 0.0
    if zero.any():
        return np.asarray(zero / zero.sum(), dtype=np.float64)
    order = np.argsort(norms)  # short gradients first: they have the largest weights, and the least rounding this way
    unit = matrix / norms / norms[:, None]
    root = _root(unit[np.ix_(order, order)])
    inverse_norms = norms.min() / norms[order]
    solution, _ = nnls(np.vstack([root, inverse_norms]), np.append(np.zeros(len(root)), 1.0), maxiter=100 * len(norms))
    weights = np.empty(len(norms))
    weights[order] = solution * inverse_norms
    return np.asarray(weights / weights.sum())


def _root(matrix: Array) -> Array:
    """Return ``R`` (rank, m) with ``RᵀR = matrix``, for a matrix that is positive semidefinite up to rounding.

    A pivoted Cholesky decomposition. An eigendecomposition would take most of the server's time for a thousand clients.
    """
    factor, pivots, rank, _ = lapack.dpstrf(matrix)
    root = np.zeros((rank, len(matrix)))
    root[:, pivots - 1] = np.triu(factor)[:rank]
    return root[np.argsort(pivots[:rank])]
