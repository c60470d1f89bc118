"""How do gradients relate to each other, and what is a given combination of them?

The only two operations that touch parameter space. Gradients stay float32 in memory; every product and sum
is float64, one chunk of parameters at a time. Rows may come in several blocks, which are never joined: a second copy
of a federation's gradients may be all the memory there is.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = torch.Tensor | Sequence[torch.Tensor]  # (m, n), or blocks of it, one below the other


def gram(rows: Rows, chunk: int | None = None) -> Array:
    """Return ``K = G Gᵀ``, the ``GᵀG`` of Eq. (5) for a matrix that holds one gradient per row.

    ``rows`` is (m, n); ``K`` is (m, m), float64 and exactly symmetric. float32 would not do: clients with
    similar data have gradients that differ in the last few digits, and the min-norm weights and the
    projection live in those digits.

    Raises ValueError, with the row numbers, where a gradient holds NaN or infinity.

    >>> gram(torch.tensor([[3.0, 4.0], [1.0, 0.0]])).tolist()
    [[25.0, 3.0], [3.0, 1.0]]
    """
    blocks = _blocks(rows)
    m = sum(map(len, blocks))
    total = torch.zeros(m, m, dtype=torch.float64, device=blocks[0].device)
    for _, part in _chunks(blocks, chunk):
        total += part @ part.T
        del part  # or it would still be there while the next one is made
    # Squares of float32 cannot overflow float64, so the diagonal is finite if and only if the row is.
    broken = torch.nonzero(~torch.isfinite(total.diagonal())).flatten().tolist()
    if broken:
        raise ValueError(f"gradients hold NaN or infinity in rows {broken}; leave these clients out")
    result: Array = ((total + total.T) / 2).cpu().numpy()
    return result


def combine(coefficients: Array, rows: Rows, chunk: int | None = None) -> torch.Tensor:
    """Return ``d = cᵀ G``, the ``g_d = G λ`` after Eq. (5), as (n,) float32 from (m,) and (m, n).

    Sums are float64 and rounded once, because coefficients of a projection can be large and cancel.

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
    """Return how many parameters are looked at in one go: 2^15, fewer from 1,024 rows on, for at most 256 MB."""
    return max(1, min(2**15, 2**25 // max(rows, 1)))


def check_gram(gram: Array) -> Array:
    """Return ``gram`` as float64, or raise ValueError unless it is square, not empty and finite."""
    matrix = np.asarray(gram, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"a Gram matrix is square and not empty, this has shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist()
        raise ValueError(f"the Gram matrix holds NaN or infinity in rows {broken}; leave them out")
    return matrix


def _blocks(rows: Rows) -> tuple[torch.Tensor, ...]:
    blocks = (rows,) if isinstance(rows, torch.Tensor) else tuple(rows)
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != blocks[0].shape[1]:
            raise ValueError(f"gradients are a (clients, parameters) matrix, this has shape {tuple(block.shape)}")
    return blocks


def _chunks(blocks: tuple[torch.Tensor, ...], chunk: int | None) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield the columns of a chunk, and what all rows hold there, in float64."""
    size = chunk or chunk_size(sum(map(len, blocks)))
    for start in range(0, blocks[0].shape[1], size):
        place = slice(start, start + size)
        parts = [block[:, place].detach() for block in blocks]
        yield place, (parts[0] if len(parts) == 1 else torch.cat(parts)).double()
