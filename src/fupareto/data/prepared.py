"""Samples and labels of a pool in the form that clients have them, and stratified subsets."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fupareto.data.formats import Pool
from fupareto.errors import UserError
from fupareto.tasks import Task

MOST_CLASSES = 2**16


def targets(pool: Pool, task: Task, where: Path) -> NDArray[Any]:
    """Return targets of a task other than classes; refuse those that it does not have."""
    if pool.y.size == 0 or pool.x.size == 0:
        raise UserError(f"{where} contains no samples")
    try:
        return task.prepared(torch.from_numpy(np.ascontiguousarray(pool.y))).numpy()
    except (ValueError, TypeError) as error:
        raise UserError(f"{where}: {error}") from error


def labels(pool: Pool, classes: int | None, where: Path) -> NDArray[np.int64]:
    """Return the labels of classes; refuse those that are no class numbers."""
    y = pool.y
    if y.size == 0 or pool.x.size == 0:
        raise UserError(f"{where} contains no samples")
    if y.ndim != 1:
        raise UserError(f"{where}: labels have shape {y.shape}; they must be one number per sample")
    if y.dtype.kind not in "iufb" or (y.dtype.kind == "f" and not np.array_equal(y, np.rint(y))):
        raise UserError(f"{where}: labels must be integers 0, 1, 2, ..., not {y.dtype} such as {y.flat[0]!s}")
    low, high = y.min(), y.max()
    if low < 0:
        raise UserError(f"{where}: label {low} is negative; number the classes 0, 1, 2, ...")
    if classes is not None and high >= classes:
        raise UserError(f"{where}: label {high} is out of range for {classes} classes; the file is damaged")
    if high >= MOST_CLASSES:
        raise UserError(
            f"{where}: label {high} is too large: a model has an output for every number up to it, and at most "
            f"{MOST_CLASSES:,} are allowed; number the classes 0, 1, 2, ..."
        )
    return y.astype(np.int64)


def scaled(x: NDArray[Any], mean: tuple[float, ...], std: tuple[float, ...], where: Path) -> Tensor:
    """Return float32 in model-input space: bytes divided by 255, then normalised by channel."""
    if x.dtype.kind in "iu" and x.dtype != np.uint8 and x.ndim == 2:
        return torch.from_numpy(x.astype(np.int64))  # token ids
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise UserError(
            f"{where}: samples are {x.dtype}; store bytes (uint8, divided by 255 here), floats, or "
            "token ids as integers (N, L)"
        )
    with np.errstate(over="ignore"):
        tensor = torch.from_numpy(np.array(x, dtype=np.float32, order="C"))
    if x.dtype == np.uint8:
        tensor.div_(255)
    elif not bool(torch.isfinite(tensor).all()):
        raise UserError(f"{where}: samples contain NaN or infinite values; remove or replace them")
    if mean:
        tensor.sub_(torch.tensor(mean).view(1, -1, 1, 1)).div_(torch.tensor(std).view(1, -1, 1, 1))
    return tensor


def subset(strata: NDArray[np.int64], samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return exactly ``samples`` indices in ascending order, classes in proportion (largest remainders)."""
    if not 1 <= samples <= strata.size:
        raise UserError(f"cannot take a subset of {samples} samples; choose between 1 and {strata.size}")
    members = [np.flatnonzero(strata == k) for k in np.unique(strata)]
    exact = np.array([len(m) for m in members]) * samples / strata.size
    take = np.floor(exact).astype(np.int64)
    short = samples - int(take.sum())
    take[np.argsort(take - exact, kind="stable")[:short]] += 1
    chosen = [rng.choice(m, size=n, replace=False) for m, n in zip(members, take, strict=True)]
    return np.sort(np.concatenate(chosen))
