"""Readers for the published files of each source.

Every reader returns the pool as stored (training samples first), unscaled. A damaged file raises a
:class:`UserError` that names it. No reader unpickles.
"""

import csv
import gzip
import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fupareto import documents
from fupareto.errors import UserError

IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR10 = (
    *(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)),
    "cifar-10-batches-bin/test_batch.bin",
)
CIFAR100 = ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin")
SIDE = 32
PIXELS = 3 * SIDE * SIDE
DEFAULT_TRAIN_FRACTION = 0.8
LARGEST = 2**29  # bytes of a published file, unpacked; the largest of the known ones has 148 MB
LARGEST_IMAGE = 2**26
BOMB = 2**30, 100  # bytes, and times its size on disk, to which an archive must not unpack both

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pool:
    """Samples as stored.

    Attributes:
        x: Images (N, C, H, W) or features (N, F).
        y: Labels (N,).
        train_fraction: Fraction of the samples that a client trains on.
        client: Number of the client that owns each row (N,); None where the file does not say.
    """

    x: Array
    y: Array
    train_fraction: float
    client: NDArray[np.int64] | None = None


def _merge(where: Path, x_train: Array, y_train: Array, x_test: Array, y_test: Array) -> Pool:
    for part, x, y in (("training", x_train, y_train), ("test", x_test, y_test)):
        if len(x) != len(y):
            raise UserError(f"{where}: {len(x)} {part} samples but {len(y)} {part} labels; the numbers must be equal")
        if len(x) == 0:
            raise UserError(f"{where}: no {part} samples; both parts need at least one")
    if x_train.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"{where}: training samples have shape {x_train.shape[1:]}, test samples {x_test.shape[1:]}; "
            "the shapes must be equal"
        )
    fraction = len(x_train) / (len(x_train) + len(x_test))
    return Pool(np.concatenate([x_train, x_test]), np.concatenate([y_train, y_test]), fraction)


def _bytes(path: Path) -> bytes:
    """Return the content of a published file, unpacked; refuse one that is far larger than any of them."""
    data = documents.read(path, LARGEST)
    if path.suffix != ".gz":
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            unpacked = packed.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); it is damaged or truncated, download it again") from error
    if len(unpacked) > LARGEST:
        raise UserError(f"{path} unpacks to more than {LARGEST >> 20} MB; it is damaged, download it again")
    return unpacked


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one IDX file of unsigned bytes (magic 0x0000 08 dims, big-endian sizes, values)."""
    data = _bytes(path)
    if len(data) < 4 or data[:3] != b"\x00\x00\x08" or not 1 <= data[3] <= 4:
        raise UserError(f"{path} is not an IDX file of bytes (its first four bytes are {data[:4].hex(' ') or 'none'})")
    dims = data[3]
    header = 4 + 4 * dims
    shape = struct.unpack(f">{dims}I", data[4:header]) if len(data) >= header else ()
    wanted = header + int(np.prod(shape, dtype=object)) if shape else header
    if len(data) != wanted:
        raise UserError(f"{path} has {len(data)} bytes, but its header says {wanted}; download it again")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def idx_file(folder: Path, name: str) -> Path:
    """Return the path of an IDX file: the unpacked one if it exists, else the ``.gz``."""
    return folder / name if (folder / name).is_file() else folder / f"{name}.gz"


def read_fashion_mnist(folder: Path) -> Pool:
    """Read the four IDX files, compressed or not."""
    arrays = []
    for name, dims in zip(IDX, (3, 1, 3, 1), strict=True):
        array = read_idx(idx_file(folder, name))
        if array.ndim != dims:
            raise UserError(f"{idx_file(folder, name)} has {array.ndim} dimensions, not {dims}; download it again")
        arrays.append(array[:, None] if dims == 3 else array)
    return _merge(folder, *arrays)


def _read_bin(path: Path, label_bytes: int) -> tuple[Array, Array]:
    """Read CIFAR records: the label bytes (the last one is the fine label), then 3 planes of 32x32."""
    data = np.frombuffer(_bytes(path), np.uint8)
    record = label_bytes + PIXELS
    if data.size == 0 or data.size % record:
        raise UserError(f"{path} has {data.size} bytes, not a multiple of {record}; it is truncated, download it again")
    rows = data.reshape(-1, record)
    return rows[:, label_bytes:].reshape(-1, 3, SIDE, SIDE), rows[:, label_bytes - 1]


def _read_bins(folder: Path, names: tuple[str, ...], label_bytes: int) -> Pool:
    batches = [_read_bin(folder / name, label_bytes) for name in names]
    x = np.concatenate([batch[0] for batch in batches[:-1]])
    y = np.concatenate([batch[1] for batch in batches[:-1]])
    return _merge(folder, x, y, *batches[-1])


def read_cifar10(folder: Path) -> Pool:
    """Read the five training batches and the test batch of the binary release."""
    return _read_bins(folder, CIFAR10, 1)


def read_cifar100(folder: Path) -> Pool:
    """Read the binary release of CIFAR-100, with its fine labels."""
    return _read_bins(folder, CIFAR100, 2)


def gtsrb_training(folder: Path) -> Path:
    """Return the directory of the class directories 00000, 00001, ..., of the final release if it exists.

    The other layout is the one of the 2011 competition, which has only 26,640 of the 39,209 training images.
    """
    final, first = folder / "GTSRB/Final_Training/Images", folder / "GTSRB/Training"
    return first if first.is_dir() and not final.is_dir() else final


def gtsrb_test_labels(folder: Path) -> Path:
    """Return the file of the test labels, beside the test images or where its own archive is unpacked."""
    places = [folder / place / "GT-final_test.csv" for place in ("GTSRB/Final_Test/Images", "GTSRB", ".")]
    return next((path for path in places if path.is_file()), places[0])


def read_gtsrb(folder: Path) -> Pool:
    """Read ``gtsrb.npz`` if it exists, else the official directories of PPM images, resized to 32x32."""
    if (folder / "gtsrb.npz").is_file():
        return read_npz(folder / "gtsrb.npz")
    training = gtsrb_training(folder)
    tables = sorted(training.glob("[0-9]*/GT-*.csv"))
    train = [pair for table in tables for pair in _read_table(table, table.parent)]
    test = _read_table(gtsrb_test_labels(folder), folder / "GTSRB/Final_Test/Images")
    (x_train, y_train), (x_test, y_test) = _read_images(train), _read_images(test)
    return _merge(folder / "GTSRB", x_train, y_train, x_test, y_test)


def _read_table(path: Path, images: Path) -> list[tuple[Path, int]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [(images / row["Filename"], int(row["ClassId"])) for row in csv.DictReader(file, delimiter=";")]
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise UserError(f"{path} is not a table with columns Filename;...;ClassId ({error!r})") from error


def _read_images(pairs: list[tuple[Path, int]]) -> tuple[Array, Array]:
    from PIL import Image

    x = np.empty((len(pairs), 3, SIDE, SIDE), np.uint8)
    for row, (path, _) in zip(x, pairs, strict=True):
        try:
            with Image.open(io.BytesIO(documents.read(path, LARGEST_IMAGE)), formats=("PPM",)) as image:
                if max(image.size) > 2**12:
                    raise ValueError(f"it has {image.width} times {image.height} pixels")
                small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        except (OSError, ValueError, UserError) as error:
            raise UserError(f"{path} cannot be read as an image ({error}); download the data set again") from error
        row[:] = np.asarray(small).transpose(2, 0, 1)
    return x, np.array([label for _, label in pairs], np.int64)


def read_npz(path: Path) -> Pool:
    """Read an .npz file with x_train, y_train, x_test and y_test, or with x and y, of which clients train on 80 %.

    Beside x and y, an array ``client`` says who owns which row, by numbers or names.
    """
    if not path.is_file():
        raise UserError(f"the file {path} does not exist")
    _check_archive(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = set(archive.files)
            wanted = next((w for w in (_FOUR, _TWO) if names.issuperset(w)), None)
            arrays = [archive[name] for name in wanted] if wanted else []
            owner = archive["client"] if "client" in names and wanted == _TWO else None
    except (ValueError, OSError, EOFError, ArithmeticError, RuntimeError, MemoryError, SyntaxError, *_ZIP) as error:
        raise UserError(
            f"{path} cannot be read ({error}); it must contain plain numeric arrays (object arrays are refused: "
            "loading them could run code)"
        ) from error
    if not arrays:
        raise UserError(f"{path} contains {sorted(names)}; it must contain {', '.join(_FOUR)}, or x and y")
    if not all(isinstance(array, np.ndarray) for array in arrays):
        raise UserError(f"{path} contains entries that are not arrays; write it with numpy.savez")
    arrays[0::2] = [_channels_first(x, path) for x in arrays[0::2]]
    arrays[1::2] = [y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y for y in arrays[1::2]]
    if len(arrays) == 4:
        return _merge(path, *arrays)
    x, y = arrays
    if not y.ndim:
        raise UserError(f"{path}: labels have shape (); there must be one number per sample")
    if len(x) != len(y):
        raise UserError(f"{path}: {len(x)} samples but {len(y)} labels; the numbers must be equal")
    return Pool(x, y, DEFAULT_TRAIN_FRACTION, None if owner is None else _owners(owner, len(x), path))


def _owners(owner: Array, rows: int, path: Path) -> NDArray[np.int64]:
    """Return who owns which row, numbered in the order of the sorted names."""
    if owner.shape != (rows,):
        raise UserError(f"{path}: the array client has shape {owner.shape}, and there are {rows} samples")
    return np.unique(owner, return_inverse=True)[1].astype(np.int64)


def _check_archive(path: Path) -> None:
    """Refuse a file that is no archive, and an archive that unpacks to far more than it has on disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        packed = path.stat().st_size
    except (OSError, ValueError, RuntimeError, *_ZIP) as error:
        raise UserError(f"{path} is not an .npz archive ({error}); write it with numpy.savez") from error
    most, times = BOMB
    if unpacked > most and unpacked > times * packed:
        raise UserError(
            f"{path} has {packed / 1e6:,.1f} MB and unpacks to {unpacked / 1e9:,.1f} GB, which is refused as a "
            "decompression bomb; if these data are meant, write them without compression, with numpy.savez"
        )


_ZIP = (zlib.error, zipfile.BadZipFile, NotImplementedError, struct.error, UnicodeDecodeError)
_FOUR, _TWO = ("x_train", "y_train", "x_test", "y_test"), ("x", "y")


def _channels_first(x: Array, path: Path) -> Array:
    """Return (N, H, W) and (N, H, W, C) as (N, C, H, W); features (N, F) are not changed."""
    if x.ndim == 2:
        return x
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[-1] in (1, 3):
        return x.transpose(0, 3, 1, 2)
    if x.ndim == 4 and x.shape[1] in (1, 3):
        return x
    raise UserError(
        f"{path}: samples have shape {x.shape}; allowed are (N, features), (N, H, W), (N, H, W, C) and "
        "(N, C, H, W) with 1 or 3 channels"
    )
