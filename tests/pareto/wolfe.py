"""Where does the convex hull of points come nearest to the origin? Three oracles, independent of the package.

All work on the vectors themselves, never on their Gram matrix, so they keep the digits that squaring loses.
"""

from itertools import combinations

import numpy as np
from scipy.optimize import nnls

from fupareto.pareto import Array


def affine_min_norm(points: Array) -> Array:
    """Weights (sum 1, any sign) of the point of the affine hull of ``points`` nearest to the origin."""
    if len(points) == 1:
        return np.ones(1)
    edges = points[1:] - points[0]
    rest = np.linalg.lstsq(edges.T, -points[0], rcond=None)[0]
    return np.append(1.0 - rest.sum(), rest)


def wolfe(points: Array, tolerance: float = 1e-14) -> Array:
    """P. Wolfe, Finding the nearest point in a polytope, Math. Programming 11 (1976): weights on the simplex.

    A corral (affinely independent points whose affine min-norm point is inside their hull) grows by the point
    that lies deepest on the near side of the current nearest point, and sheds points until it is a corral.
    """
    squares = (points**2).sum(axis=1)
    corral = [int(squares.argmin())]
    inside = np.ones(1)
    for _ in range(50 * len(points)):
        nearest = inside @ points[corral]
        depth = points @ nearest
        entering = int(depth.argmin())
        reach = max(float(squares[entering]), float(squares[corral].max()))
        if entering in corral or depth[entering] > nearest @ nearest - tolerance * reach:
            break
        corral, inside = [*corral, entering], np.append(inside, 0.0)
        while True:
            affine = affine_min_norm(points[corral])
            if (affine > 1e-12).all():
                inside = affine
                break
            leaving = affine <= 1e-12
            towards = min(1.0, (inside[leaving] / np.maximum(inside[leaving] - affine[leaving], 1e-300)).min())
            inside = (1.0 - towards) * inside + towards * affine
            keep = inside > 1e-12
            if keep.all():
                keep[inside.argmin()] = False
            corral = [i for i, kept in zip(corral, keep, strict=True) if kept]
            inside = inside[keep] / inside[keep].sum()
    else:
        raise AssertionError("Wolfe's algorithm did not end")
    weights = np.zeros(len(points))
    weights[corral] = inside
    return weights


def brute_force(points: Array) -> Array:
    """Try every face: the nearest point is the affine min-norm point of one of them."""
    best, best_square = np.zeros(len(points)), np.inf
    for size in range(1, len(points) + 1):
        for face in combinations(range(len(points)), size):
            weights = np.zeros(len(points))
            weights[list(face)] = affine_min_norm(points[list(face)])
            square = float(((weights @ points) ** 2).sum())
            if (weights >= -1e-12).all() and square < best_square:
                best, best_square = weights, square
    return best


def lawson_hanson(points: Array) -> Array:
    """Solve it as non-negative least squares, one active variable at a time, by scipy."""
    norms = np.linalg.norm(points, axis=1)
    inverse = norms.min() / norms
    system = np.vstack([(points / norms[:, None]).T, inverse])
    weights = nnls(system, np.append(np.zeros(points.shape[1]), 1.0), maxiter=100 * len(points))[0] * inverse
    return np.asarray(weights / weights.sum())
