"""Min-norm point of the convex hull of gradients (MGDA)."""

import numpy as np

from fupareto.pareto.active_set import nonnegative
from fupareto.pareto.gram import Array, check_gram


def min_norm(gram: Array) -> Array:
    """Return ``λ* = argmin ½ λᵀ K λ`` over ``λ ≥ 0, Σ λ = 1`` (Eq. 5, MGDA).

    The direction ``d = Σ λ_i g_i`` then satisfies ``d·g_i ≥ ‖d‖²`` for every objective, with equality where
    ``λ_i > 0``: a step along ``-d`` lowers all of them, or ``d = 0`` and the point is Pareto stationary.

    Solved exactly as a least-squares problem. With ``x_i = λ_i ‖g_i‖`` and ``U`` the Gram matrix of the
    unit gradients, ``min xᵀU x + (Σ x_i / ‖g_i‖ - 1)²`` over ``x ≥ 0`` has its solution on the ray of
    ``λ*``, for every weight of the second term. Unit gradients preserve the relative accuracy of short ones, and the
    convergence of the active-set solver when norms differ by orders of magnitude. Only the part of the matrix that
    belongs to positive weights is ever factored (:func:`~fupareto.pareto.active_set.nonnegative`).

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
    inverse_norms = norms.min() / norms
    unit = matrix / norms[:, None]
    unit /= norms
    unit += inverse_norms[:, None] * inverse_norms
    weights = nonnegative(unit, inverse_norms) * inverse_norms
    return np.asarray(weights / weights.sum())
