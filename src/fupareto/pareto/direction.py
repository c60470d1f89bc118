"""Common descent directions, as coefficients over the clients' gradients.

A *hull* is a matrix ``(objectives, clients)``: row k contains the coefficients of objective k's gradient over the
clients' gradients. :func:`~fupareto.pareto.gram.combine` turns coefficients into a vector of the model's size.
"""

import math

import numpy as np

from fupareto.pareto.gram import Array
from fupareto.pareto.min_norm import min_norm


def length(gram: Array, coefficients: Array) -> float:
    """Return the norm of the combination, sqrt(c^T K c)."""
    squared = float(coefficients @ gram @ coefficients)
    return math.sqrt(max(squared, 0.0))


def equal_norms(gram: Array, live: np.typing.NDArray[np.bool_]) -> Array:
    """Return factors that scale every live gradient to the mean norm; 0 for the other gradients.

    MGDA favours short gradients: without this the client with the smallest gradient determines the direction.

    Args:
        gram: Gram matrix of the gradients (m, m).
        live: Which gradients are not (almost) zero (m,).
    """
    norms = np.sqrt(np.clip(np.diag(gram), 0.0, None))
    mean = norms[live].mean() if live.any() else 0.0
    return np.where(live, mean / np.where(live, norms, 1.0), 0.0)


def common_descent(gram: Array, hull: Array) -> Array:
    """Return the coefficients of the min-norm point of the hull, eq. (5): d·q ≥ ‖d‖² for every objective q."""
    weights: Array = min_norm(hull @ gram @ hull.T) @ hull
    return weights
