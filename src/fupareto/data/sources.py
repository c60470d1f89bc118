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
from fupareto.data import formats, prepared, text
from fupareto.data.formats import Pool
from fupareto.data.tables import Columns, read_csv
from fupareto.errors import UserError, did_you_mean
from fupareto.randomness import stream
from fupareto.tasks import Binary, Classes, Numbers, Task, Tokens
from fupareto.vocabulary import DATA_FILES

CLASSES = Classes()
COLUMNS = Columns()


@dataclass(frozen=True, eq=False)
class Dataset:
    """The pool of a source, official training samples first, in model-input space.

    Attributes:
        name: Name of the source, or the stem of a file.
        x: float32 (N, C, H, W), (N, F) for features, or int64 (N, L) for token ids.
        y: int64 (N,), or targets of another task.
        classes: Number of classes.
        train_fraction: Official fraction of training samples; every client splits its own part by it.
        task: The task of the samples.
        client: The client that owns each row (N,), numbered from 0; None where the source does not say.
    """

    name: str
    x: Tensor
    y: Tensor
    classes: int
    train_fraction: float
    task: Task = CLASSES
    client: NDArray[np.int64] | None = None

    @property
    def outputs(self) -> int:
        """Return how many outputs a model needs, per sample or per position."""
        return self.classes if isinstance(self.task, Classes | Tokens) else int(self.y[0].numel())


def _digits(_: Path) -> Pool:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Pool((digits.images / 16).astype(np.float32)[:, None], digits.target, formats.DEFAULT_TRAIN_FRACTION)


def _breast_cancer(_: Path) -> Pool:
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    return Pool(_standardised(table.data), table.target, formats.DEFAULT_TRAIN_FRACTION)


def _diabetes(_: Path) -> Pool:
    from sklearn.datasets import load_diabetes

    table = load_diabetes()
    target = (table.target - table.target.mean()) / table.target.std()
    return Pool(_standardised(table.data), target.astype(np.float32), formats.DEFAULT_TRAIN_FRACTION)


def _standard_library(_: Path) -> Pool:
    x, owner = text.standard_library()
    return Pool(x, x, formats.DEFAULT_TRAIN_FRACTION, owner)


def _standardised(x: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray((x - x.mean(0)) / x.std(0), np.float32)


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
    task: Task = CLASSES


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
    "breast-cancer": _Source(
        "scikit-learn's breast-cancer table: 569 rows of 30 features, yes or no", 2, _breast_cancer, task=Binary()
    ),
    "diabetes": _Source(
        "scikit-learn's diabetes table: 442 rows of 10 features, a standardised number", 1, _diabetes, task=Numbers()
    ),
    "stdlib": _Source(
        "sources of ten packages of Python's standard library, each a client: windows of 64 bytes",
        text.BYTES,
        _standard_library,
        task=Tokens(shift=True),
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


def load(
    source: str,
    root: Path | None = None,
    samples: int | None = None,
    seed: int = 0,
    task: Task | None = None,
    columns: Columns = COLUMNS,
) -> Dataset:
    """Load a named source, an ``.npz`` or ``.csv`` file or a directory of text, all of it or a stratified subset.

    A subset keeps the order of the pool and the proportions of its classes (of its clients, where the source says who
    owns which rows).

    Args:
        source: A name in :data:`SOURCES`, the path of an ``.npz`` or ``.csv`` file, or that of a directory with one
            entry of text per client.
        root: Directory of the data sets; see :func:`data_root`.
        samples: Size of the subset; None for all samples.
        seed: Seed of the subset.
        task: The task of a file's samples; by default one of several classes, and the next token for text.
        columns: Which columns of a ``.csv`` file are targets and the client.
    """
    known = None if source.endswith(DATA_FILES) else _KNOWN.get(source)
    where = data_root(root) / source if known else documents.expand(source)
    classes = known.classes if known else None
    if known is not None:
        if known.absent is not None and (absent := known.absent(where)):
            raise UserError(
                f"{source} is not on disk; missing: {', '.join(map(str, absent))}. Put the files there, or "
                f"run `fupareto data get {source}`"
            )
        pool = known.read(where)
    elif source.endswith(".npz"):
        pool = formats.read_npz(where)
    elif source.endswith(".csv"):
        pool = read_csv(where, columns)
    elif where.is_dir():
        x, owner = text.read_text(where)
        pool, classes = Pool(x, x, formats.DEFAULT_TRAIN_FRACTION, owner), text.BYTES
        task = task or Tokens(shift=True)
    else:
        hint = did_you_mean(source, _KNOWN)
        raise UserError(
            f"unknown data {source!r}; choose one of {', '.join(_KNOWN)}, the path of an .npz or .csv file, or a "
            f"directory of text{hint}"
        )
    return _dataset(source, where, pool, known, classes, task, samples, seed)


def _dataset(
    source: str,
    where: Path,
    pool: Pool,
    known: _Source | None,
    classes: int | None,
    task: Task | None,
    samples: int | None,
    seed: int,
) -> Dataset:
    task = task or (known.task if known else Classes())
    labels = prepared.labels(pool, classes, where) if isinstance(task, Classes) else prepared.targets(pool, task, where)
    strata = pool.client if pool.client is not None else labels if labels.ndim == 1 else np.zeros(len(labels), np.int64)
    chosen = None if samples is None else prepared.subset(strata, samples, stream(seed, "subset"))
    x, y = (pool.x, labels) if chosen is None else (pool.x[chosen], labels[chosen])
    owner = pool.client if chosen is None or pool.client is None else pool.client[chosen]
    mean, std = (known.mean, known.std) if known else ((), ())
    counted = 2 if labels.dtype.kind == "f" else max(int(labels.max()) + 1, 2)
    return Dataset(
        name=where.stem if known is None else source,
        x=prepared.scaled(x, mean, std, where),
        y=torch.from_numpy(y),
        classes=counted if classes is None else classes,
        train_fraction=pool.train_fraction,
        task=task,
        client=owner,
    )
