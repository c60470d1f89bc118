"""Common descent directions, as coefficients over the clients' gradients.

A *hull* is a matrix ``(objectives, clients)``: row k contains the coefficients of objective k's gradient over the
clients' gradients. Where most objectives are single gradients it is sparse.
:func:`~fupareto.pareto.gram.combine` turns coefficients into a vector of the model's size.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from scipy import sparse

from fupareto.pareto.gram import Array
from fupareto.pareto.min_norm import min_norm

Hull: TypeAlias = sparse.csr_array


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


def single(scale: Array, live: Sequence[int]) -> Hull:
    """Return the hull of single gradients: those at the positions ``live``, each with its factor."""
    rows, factors = np.arange(len(live)), scale[np.asarray(live, dtype=np.intp)]
    hull: Hull = sparse.csr_array((factors, (rows, live)), shape=(len(live), len(scale)))
    return hull


def with_row(hull: Hull, row: Array) -> Hull:
    """Return the hull with one more objective."""
    taller: Hull = sparse.csr_array(sparse.vstack([hull, row[None]]))
    return taller


def common_descent(gram: Array, hull: Hull | Array) -> Array:
    """Return the coefficients of the min-norm point of the hull, eq. (5): d·q ≥ ‖d‖² for every objective q."""
    products = hull @ (hull @ gram).T
    weights: Array = min_norm(np.asarray(products)) @ hull
    return weights
