"""How do gradients relate to each other, and what is a given combination of them?

The only two operations that touch parameter space. Gradients stay float32 in memory; every product and sum
is float64, one chunk of parameters at a time.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]


def gram(rows: torch.Tensor, chunk: int = 2**15) -> Array:
    """Return ``K = G Gᵀ``, the ``GᵀG`` of Eq. (5) for a matrix that holds one gradient per row.

    ``rows`` is (m, n); ``K`` is (m, m), float64 and exactly symmetric. float32 would not do: clients with
    similar data have gradients that differ in the last few digits, and the min-norm weights and the
    projection live in those digits.

    Raises ValueError, with the row numbers, where a gradient holds NaN or infinity.

    >>> gram(torch.tensor([[3.0, 4.0], [1.0, 0.0]])).tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    """
    _check_rows(rows)
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for part in _chunks(rows, chunk):
        block = rows[:, part].detach().double()
        total += block @ block.T
    # Squares of float32 cannot overflow float64, so the diagonal is finite if and only if the row is.
    broken = torch.nonzero(~torch.isfinite(total.diagonal())).flatten().tolist()
    if broken:
        raise ValueError(f"gradients hold NaN or infinity in rows {broken}; leave these clients out")
    result: Array = ((total + total.T) / 2).cpu().numpy()
    return result


def combine(coefficients: Array, rows: torch.Tensor, chunk: int = 2**15) -> torch.Tensor:
    """Return ``d = cᵀ G``, the ``g_d = G λ`` after Eq. (5), as (n,) float32 from (m,) and (m, n).

    Sums are float64 and rounded once, because coefficients of a projection can be large and cancel.

    >>> combine(np.array([1.0, -2.0]), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([1., 4.])
    """
    _check_rows(rows)
    weights = torch.tensor(np.asarray(coefficients, dtype=np.float64), device=rows.device)
    if weights.shape != rows.shape[:1]:
        raise ValueError(f"coefficients have shape {tuple(weights.shape)}, not one per gradient ({len(rows)},)")
    result = torch.empty(rows.shape[1], dtype=torch.float32, device=rows.device)
    for part in _chunks(rows, chunk):
        result[part] = (weights @ rows[:, part].detach().double()).float()
    return result


def check_gram(gram: Array) -> Array:
    """Return ``gram`` as float64, or raise ValueError unless it is square, not empty and finite."""
    matrix = np.asarray(gram, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"a Gram matrix is square and not empty, this has shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist()
        raise ValueError(f"the Gram matrix holds NaN or infinity in rows {broken}; leave them out")
    return matrix


def _check_rows(rows: torch.Tensor) -> None:
    if rows.ndim != 2:
        raise ValueError(f"gradients are a (clients, parameters) matrix, this has shape {tuple(rows.shape)}")


def _chunks(rows: torch.Tensor, chunk: int) -> Iterator[slice]:
    return (slice(start, start + chunk) for start in range(0, rows.shape[1], chunk))
