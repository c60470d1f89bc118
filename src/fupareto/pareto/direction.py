"""Which way decreases several objectives at once? Directions as coefficients over the clients' gradients.

A *hull* is a matrix ``(objectives, clients)``: row k holds the coefficients of objective k's gradient over the
clients' gradients. Nothing here knows about parameters; ``combine`` turns the result into a vector.
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
    """Return factors that bring every live gradient to their mean norm; dead ones get 0 (PROTOCOL C.3).

    MGDA favours short gradients: without this the client with the smallest gradient decides the direction.
    """
    norms = np.sqrt(np.clip(np.diag(gram), 0.0, None))
    mean = norms[live].mean() if live.any() else 0.0
    return np.where(live, mean / np.where(live, norms, 1.0), 0.0)


def common_descent(gram: Array, hull: Array) -> Array:
    """Return the coefficients of the min-norm point of the hull, eq. (5): d·q ≥ ‖d‖² for every objective q."""
    weights: Array = min_norm(hull @ gram @ hull.T) @ hull
    return weights
