"""Non-negative quadratic programs by active sets: only the part of the matrix with positive variables is factored.

Two phases. *Block pivoting* exchanges all variables on the wrong side at once (J. Kim, H. Park, Fast nonnegative matrix
factorization: an active-set-like method and comparisons, SIAM J. Sci. Comput. 33, 2011) and needs a handful of
factorisations, whatever the size of the active set. It needs a definite matrix, so a small ridge is added, and what it
finds is where the second phase starts: the *active-set* method of Lawson and Hanson (Solving Least Squares Problems,
1974), one variable at a time, with a Cholesky factor that grows and shrinks with the set. It is exact for singular
matrices, and seldom has more to do than to confirm what it was given.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack, solve_triangular

from fupareto.pareto.gram import Array

EPS = float(np.finfo(np.float64).eps)
RIDGE = 1e-10  # of block pivoting
MOST_BLOCKS = 40  # block exchanges at most; the second phase needs no good start
PATIENCE = 3  # full exchanges without progress before single ones


def nonnegative(matrix: Array, target: Array) -> Array:
    """Return ``x = argmin ½ xᵀ H x - bᵀ x`` over ``x ≥ 0``.

    Args:
        matrix: ``H`` (m, m), positive semidefinite up to rounding, with a diagonal of order 1.
        target: ``b`` (m,), in the range of ``H``.
    """
    start = _pivoted(matrix, target)
    return _polished(matrix, target, start)


def _pivoted(matrix: Array, target: Array) -> Array:
    """Return the solution for ``H`` plus a ridge by block pivoting; what was found so far where it does not end."""
    m, pull = len(target), matrix.sum(axis=1)  # slopes at equal weights, up to a factor
    inside = pull / pull.sum() <= target / target.sum()
    x = np.zeros(m)
    fewest, patience = m + 1, PATIENCE
    for _ in range(MOST_BLOCKS):
        try:
            x, slope = _stationary(matrix, target, inside)
        except LinAlgError:  # rounding of the matrix is larger than the ridge
            break
        wrong = (inside & (x < 0.0)) | (~inside & (slope < -1e-12))
        count = int(wrong.sum())
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, PATIENCE
        elif patience:
            patience -= 1
        else:  # the last wrong one alone: cannot go round in circles
            last = int(np.flatnonzero(wrong)[-1])
            wrong = np.zeros(m, dtype=np.bool_)
            wrong[last] = True
        inside = inside ^ wrong
    return np.maximum(x, 0.0)


def _stationary(matrix: Array, target: Array, inside: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return the point with zero slope in the variables ``inside``, the others zero, and the slopes there."""
    x = np.zeros(len(target))
    active = np.flatnonzero(inside)
    if len(active):
        part = matrix[np.ix_(active, active)]
        part[np.diag_indices_from(part)] += RIDGE
        factor = cho_factor(part, overwrite_a=True, check_finite=False)
        x[active] = cho_solve(factor, target[active], check_finite=False)
    return x, matrix @ x - target


def _polished(matrix: Array, target: Array, start: Array) -> Array:
    """Return the exact solution by the method of Lawson and Hanson from a feasible point."""
    factor = _Factor(matrix, np.flatnonzero(start > 0.0))
    x = np.zeros(len(target))
    x[factor.active] = start[factor.active]
    blocked: set[int] = set()  # variables that depend on the active ones, to rounding
    for _ in range(3 * len(target) + 10):
        x, fell = _feasible(factor, target, x)
        blocked = set() if fell else blocked
        gain = target - matrix @ x
        gain[[*factor.active, *blocked]] = 0.0
        best = int(gain.argmax())
        noise = 8 * EPS * (1.0 + float(np.abs(x).sum()))
        if gain[best] <= noise:
            break
        if not factor.add(best):
            blocked.add(best)
    return x


def _feasible(factor: "_Factor", target: Array, x: Array) -> tuple[Array, bool]:
    """Return the stationary point of the active set, from which variables that would be negative have left."""
    fell = False
    while factor.active:
        active = np.array(factor.active)
        wanted, now = factor.solve(target[active]), x[active]
        if (wanted > 0.0).all():
            x = np.zeros(len(x))
            x[active] = wanted
            break
        down = wanted <= 0.0
        share = np.min(now[down] / np.maximum(now[down] - wanted[down], 1e-300))
        moved = now + min(1.0, float(share)) * (wanted - now)
        leaving = down & (moved <= EPS * max(1.0, float(now.max(initial=0.0))))
        leaving[np.flatnonzero(down)[np.argmin(moved[down])]] = True
        x = np.zeros(len(x))
        x[active] = np.where(leaving, 0.0, np.maximum(moved, 0.0))
        factor.remove(np.flatnonzero(leaving))
        fell = True
    return x, fell


class _Factor:
    """Upper triangular Cholesky factor of the part of a matrix with some rows and columns."""

    def __init__(self, matrix: Array, start: NDArray[np.intp]) -> None:
        """Factor the part ``start``; rows that depend on the others are left out."""
        self.matrix = matrix
        part = matrix[np.ix_(start, start)]
        found, pivots, rank, _ = lapack.dpstrf(part, tol=_least(len(part))) if len(part) else (part, [], 0, 0)
        self.active = [int(start[p - 1]) for p in pivots[:rank]]
        self.upper = np.triu(found[:rank, :rank])

    def add(self, row: int) -> bool:
        """Add a row; return whether it is independent of the others."""
        k = len(self.active)
        column = solve_triangular(self.upper, self.matrix[self.active, row], trans="T") if k else np.zeros(0)
        rest = float(self.matrix[row, row] - column @ column)
        if rest <= _least(k + 1):
            return False
        grown = np.zeros((k + 1, k + 1))
        grown[:k, :k], grown[:k, k], grown[k, k] = self.upper, column, np.sqrt(rest)
        self.upper = grown
        self.active.append(row)
        return True

    def remove(self, positions: NDArray[np.intp]) -> None:
        """Remove the rows at some positions."""
        if len(positions) > 2:
            kept = np.delete(np.array(self.active), positions)
            again = _Factor(self.matrix, kept)
            self.active, self.upper = again.active, again.upper
            return
        for position in sorted(map(int, positions), reverse=True):
            row = self.upper[position, position + 1 :].copy()
            left = np.delete(np.delete(self.upper, position, axis=0), position, axis=1)
            left[position:, position:] = _updated(left[position:, position:], row)
            self.upper = left
            del self.active[position]

    def solve(self, target: Array) -> Array:
        """Solve with the active part of the matrix, with one step of refinement."""
        solution: Array = cho_solve((self.upper, False), target, check_finite=False)
        rest = target - self.matrix[np.ix_(self.active, self.active)] @ solution
        refined: Array = solution + cho_solve((self.upper, False), rest, check_finite=False)
        return refined


def _least(rows: int) -> float:
    """Return the square below which what is left of a unit row is rounding."""
    return 10 * max(rows, 1) * EPS


def _updated(upper: Array, row: Array) -> Array:
    """Return the factor of ``RᵀR + r rᵀ``, by a rotation per row."""
    upper, row = upper.copy(), row.copy()
    for k in range(len(row)):
        length = np.hypot(upper[k, k], row[k])
        cosine, sine = upper[k, k] / length, row[k] / length
        above = upper[k, k:].copy()
        upper[k, k:] = cosine * above + sine * row[k:]
        row[k:] = cosine * row[k:] - sine * above
    return upper
