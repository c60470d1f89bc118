"""Named data sets: where they are on disk, and loading them in model-input space."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fupareto import documents
from fupareto.data import formats
from fupareto.data.formats import Pool
from fupareto.errors import UserError, did_you_mean
from fupareto.randomness import stream

MOST_CLASSES = 2**16


@dataclass(frozen=True, eq=False)
class Dataset:
    """The pool of a source, official training samples first, in model-input space.

    Attributes:
        name: Name of the source, or the stem of an .npz file.
        x: float32 (N, C, H, W), or (N, F) for features.
        y: int64 (N,).
        classes: Number of classes.
        train_fraction: Official fraction of training samples; every client splits its own part by it.
    """

    name: str
    x: Tensor
    y: Tensor
    classes: int
    train_fraction: float


def _digits(_: Path) -> Pool:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Pool((digits.images / 16).astype(np.float32)[:, None], digits.target, formats.DEFAULT_TRAIN_FRACTION)


def _absent(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if not (folder / name).is_file()]


def _absent_idx(folder: Path) -> list[Path]:
    return [path for name in formats.IDX if not (path := formats.idx_file(folder, name)).is_file()]


def _absent_gtsrb(folder: Path) -> list[Path]:
    if (folder / "gtsrb.npz").is_file():
        return []
    training, test = formats.gtsrb_training(folder), folder / "GTSRB/Final_Test/Images"
    absent = [] if any(training.glob("[0-9]*/GT-*.csv")) else [training / "00000/GT-00000.csv (and 00001 ... 00042)"]
    absent += [] if any(test.glob("*.ppm")) else [test / "*.ppm"]
    return absent + _absent(folder, (str(formats.gtsrb_test_labels(folder).relative_to(folder)),))


@dataclass(frozen=True)
class _Source:
    about: str
    classes: int
    read: Callable[[Path], Pool]
    absent: Callable[[Path], list[Path]] | None = None  # None: embedded
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


_CIFAR_MEAN, _CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_KNOWN = {
    "digits": _Source("scikit-learn's handwritten digits: 1,797 of 8x8 grey, 10 classes", 10, _digits),
    "fashion-mnist": _Source(
        "Fashion-MNIST: 70,000 of 28x28 grey, 10 classes", 10, formats.read_fashion_mnist, _absent_idx
    ),
    "cifar10": _Source(
        "CIFAR-10: 60,000 of 32x32 colour, 10 classes",
        10,
        formats.read_cifar10,
        lambda folder: _absent(folder, formats.CIFAR10),
        _CIFAR_MEAN,
        _CIFAR_STD,
    ),
    "cifar100": _Source(
        "CIFAR-100: 60,000 of 32x32 colour, 100 classes (fine labels)",
        100,
        formats.read_cifar100,
        lambda folder: _absent(folder, formats.CIFAR100),
        _CIFAR_MEAN,
        _CIFAR_STD,
    ),
    "gtsrb": _Source(
        "GTSRB traffic signs: 51,839 resized to 32x32 colour, 43 unbalanced classes",
        43,
        formats.read_gtsrb,
        _absent_gtsrb,
    ),
}
SOURCES: dict[str, str] = {name: source.about for name, source in _KNOWN.items()}


def data_root(root: Path | None = None) -> Path:
    """Return the directory of the data sets: ``root``, else $FUPARETO_DATA, else ~/.cache/fupareto/data."""
    if root is not None:
        return documents.expand(root)
    return documents.expand(os.environ.get("FUPARETO_DATA") or "~/.cache/fupareto/data")


def status(root: Path | None = None) -> dict[str, str]:
    """Return for each source whether it is embedded, on disk (with the path) or missing."""
    answer = {}
    for name, source in _KNOWN.items():
        folder = data_root(root) / name
        if source.absent is None:
            answer[name] = "embedded"
        else:
            answer[name] = "missing" if source.absent(folder) else f"on disk at {folder}"
    return answer


def load(source: str, root: Path | None = None, samples: int | None = None, seed: int = 0) -> Dataset:
    """Load a named source or an ``.npz`` file, all of it or a stratified subset.

    A subset keeps the order of the pool and the proportions of its classes.

    Args:
        source: A name in :data:`SOURCES`, or the path of an ``.npz`` file.
        root: Directory of the data sets; see :func:`data_root`.
        samples: Size of the subset; None for all samples.
        seed: Seed of the subset.
    """
    if source.endswith(".npz"):
        where = documents.expand(source)
        pool, classes, known = formats.read_npz(where), None, None
    else:
        known = _KNOWN.get(source)
        if known is None:
            hint = did_you_mean(source, _KNOWN)
            raise UserError(
                f"unknown data {source!r}; choose one of {', '.join(_KNOWN)}, or the path of an .npz file{hint}"
            )
        where = data_root(root) / source
        if known.absent is not None and (absent := known.absent(where)):
            raise UserError(
                f"{source} is not on disk; missing: {', '.join(map(str, absent))}. Put the files there, or "
                f"run `fupareto data get {source}`"
            )
        pool, classes = known.read(where), known.classes
    labels = _labels(pool, classes, where)
    chosen = None if samples is None else subset(labels, samples, stream(seed, "subset"))
    x, y = (pool.x, labels) if chosen is None else (pool.x[chosen], labels[chosen])
    mean, std = (known.mean, known.std) if known else ((), ())
    return Dataset(
        name=where.stem if known is None else source,
        x=_scaled(x, mean, std, where),
        y=torch.from_numpy(y),
        classes=max(int(labels.max()) + 1, 2) if classes is None else classes,
        train_fraction=pool.train_fraction,
    )


def _labels(pool: Pool, classes: int | None, where: Path) -> NDArray[np.int64]:
    y = pool.y
    if y.size == 0 or pool.x.size == 0:
        raise UserError(f"{where} contains no samples")
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


def _scaled(x: NDArray[Any], mean: tuple[float, ...], std: tuple[float, ...], where: Path) -> Tensor:
    """Return float32 in model-input space: bytes divided by 255, then normalised by channel."""
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise UserError(f"{where}: samples are {x.dtype}; store bytes (uint8, divided by 255 here) or floats")
    with np.errstate(over="ignore"):
        tensor = torch.from_numpy(np.array(x, dtype=np.float32, order="C"))
    if x.dtype == np.uint8:
        tensor.div_(255)
    elif not bool(torch.isfinite(tensor).all()):
        raise UserError(f"{where}: samples contain NaN or infinite values; remove or replace them")
    if mean:
        tensor.sub_(torch.tensor(mean).view(1, -1, 1, 1)).div_(torch.tensor(std).view(1, -1, 1, 1))
    return tensor


def subset(labels: NDArray[np.int64], samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return exactly ``samples`` indices in ascending order, classes in proportion (largest remainders)."""
    if not 1 <= samples <= labels.size:
        raise UserError(f"cannot take a subset of {samples} samples; choose between 1 and {labels.size}")
    members = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    exact = np.array([len(m) for m in members]) * samples / labels.size
    take = np.floor(exact).astype(np.int64)
    short = samples - int(take.sum())
    take[np.argsort(take - exact, kind="stable")[:short]] += 1
    chosen = [rng.choice(m, size=n, replace=False) for m, n in zip(members, take, strict=True)]
    return np.sort(np.concatenate(chosen))
