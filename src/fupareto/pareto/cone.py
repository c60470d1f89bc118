"""Projection of a gradient into the cone of directions that raise no other client's loss."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from fupareto.pareto.gram import Array, check_gram


def into_cone(gram: Array, targets: Sequence[int], others: Sequence[int]) -> Array:
    """Return the coefficients of the point nearest to ``g_u`` in ``{d : d·g_r ≥ 0 for all r}``, for every target.

    A step along ``-d`` then raises no other client's loss, to first order. By duality ``d = g_u + Σ μ_r g_r`` with
    ``μ = argmin_{μ ≥ 0} ‖g_u + Σ μ_r g_r‖``, a non-negative least-squares problem; it is solved in unit gradients,
    as in :func:`~fupareto.pareto.min_norm.min_norm`. Unlike the projection onto the null space, this leaves a target
    unchanged if it conflicts with no other gradient.

    Args:
        gram: Gram matrix of all gradients (m, m).
        targets: Row numbers of the gradients to project.
        others: Row numbers of the gradients that define the cone.

    Returns:
        Coefficients over the m gradients (len(targets), m).

    >>> into_cone(np.array([[1.0, -1.0], [-1.0, 2.0]]), targets=[0], others=[1]).round(6).tolist()
    [[1.0, 0.5]]
    """
    matrix = check_gram(gram)
    norms = np.sqrt(np.clip(matrix.diagonal(), 0.0, None))
    unit = np.where(norms > 0.0, norms, 1.0)
    eigenvalues, eigenvectors = np.linalg.eigh(matrix / unit / unit[:, None])
    root = np.sqrt(np.clip(eigenvalues, 0.0, None))[:, None] * eigenvectors.T  # columns are the unit gradients
    kept = [r for r in others if norms[r] > 0.0]
    rows = np.eye(len(matrix))[np.array(targets, dtype=np.intp)]
    for row, u in zip(rows, targets, strict=True):
        if kept and norms[u] > 0.0:
            solution, _ = nnls(root[:, kept], -root[:, u], maxiter=100 * len(matrix))
            row[kept] += solution * norms[u] / norms[kept]
    return rows
