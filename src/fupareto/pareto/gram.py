"""Gram matrix and linear combinations of gradients.

These are the only two operations on vectors of the model's size. Gradients stay float32 in memory; products and sums
are float64, one chunk of parameters at a time. Rows may be given in several blocks, which are never concatenated,
because a second copy of all gradients may not fit in memory.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

Array = NDArray[np.float64]
Rows = torch.Tensor | Sequence[torch.Tensor]  # (m, n), or blocks of it, one below the other


def gram(rows: Rows, chunk: int | None = None) -> Array:
    """Return the Gram matrix ``K = G Gᵀ`` of gradients in rows, the ``GᵀG`` of Eq. (5).

    ``K`` is float64 and exactly symmetric. float32 is not accurate enough: gradients of clients with similar data
    differ in the last few digits, which determine the min-norm weights and the projection.

    Args:
        rows: Gradients (m, n), or blocks of them.
        chunk: Parameters per chunk; by default :func:`chunk_size`.

    Returns:
        The matrix (m, m).

    Raises:
        ValueError: If a gradient contains NaN or infinity, with the row numbers.

    >>> gram(torch.tensor([[3.0, 4.0], [1.0, 0.0]])).tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    """
    blocks = _blocks(rows)
    m = sum(map(len, blocks))
    total = np.zeros((m, m), order="F")
    for _, part in _chunks(blocks, chunk) if m else ():
        # One triangle is half of the work of a product with the transpose.
        total = dsyrk(1.0, part.cpu().numpy().T, trans=1, beta=1.0, c=total, overwrite_c=1)
        del part  # free the chunk before the next one is made
    # Squares of float32 cannot overflow float64, so the diagonal is finite if and only if the row is.
    broken = np.flatnonzero(~np.isfinite(total.diagonal())).tolist()
    if broken:
        raise ValueError(f"gradients contain NaN or infinity in rows {broken}; leave these clients out")
    return _mirrored(total)


def _mirrored(upper: Array) -> Array:
    """Return the symmetric matrix with this upper triangle, in the same memory."""
    size = 1024
    for start in range(0, len(upper), size):
        rows = slice(start, start + size)
        upper[start:, rows] = np.vstack([np.triu(upper[rows, rows]), upper[rows, start + size :].T])
        corner = upper[rows, rows]
        corner += np.triu(corner, 1).T
    return upper


def combine(coefficients: Array, rows: Rows, chunk: int | None = None) -> torch.Tensor:
    """Return the linear combination ``d = cᵀ G`` of gradients in rows, the ``g_d = G λ`` after Eq. (5).

    Sums are float64 and rounded once, because coefficients of a projection can be large and cancel.

    Args:
        coefficients: One per gradient (m,).
        rows: Gradients (m, n), or blocks of them.
        chunk: Parameters per chunk; by default :func:`chunk_size`.

    Returns:
        The combination (n,), float32.

    >>> combine(np.array([1.0, -2.0]), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([1., 4.])
    """
    blocks = _blocks(rows)
    m, device = sum(map(len, blocks)), blocks[0].device
    weights = torch.tensor(np.asarray(coefficients, dtype=np.float64), device=device)
    if weights.shape != (m,):
        raise ValueError(f"coefficients have shape {tuple(weights.shape)}, not one per gradient ({m},)")
    result = torch.empty(blocks[0].shape[1], dtype=torch.float32, device=device)
    for place, part in _chunks(blocks, chunk):
        result[place] = (weights @ part).float()
        del part
    return result


def chunk_size(rows: int) -> int:
    """Return the parameters per chunk: 2^15, fewer above 1,024 rows, so that a chunk takes at most 256 MB."""
    return max(1, min(2**15, 2**25 // max(rows, 1)))


def check_gram(gram: Array) -> Array:
    """Return ``gram`` as float64; raise ValueError unless it is square, not empty and finite."""
    matrix = np.asarray(gram, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"a Gram matrix must be square and not empty, not of shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist()
        raise ValueError(f"the Gram matrix contains NaN or infinity in rows {broken}; leave these rows out")
    return matrix


def _blocks(rows: Rows) -> tuple[torch.Tensor, ...]:
    blocks = (rows,) if isinstance(rows, torch.Tensor) else tuple(rows)
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != blocks[0].shape[1]:
            raise ValueError(f"gradients must be a matrix (clients, parameters), not of shape {tuple(block.shape)}")
    return blocks


def _chunks(blocks: tuple[torch.Tensor, ...], chunk: int | None) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield the columns of every chunk, as a slice and as a float64 matrix of all rows."""
    size = chunk or chunk_size(sum(map(len, blocks)))
    for start in range(0, blocks[0].shape[1], size):
        place = slice(start, start + size)
        parts = [block[:, place].detach() for block in blocks]
        yield place, (parts[0] if len(parts) == 1 else torch.cat(parts)).double()
