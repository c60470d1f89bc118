"""Small files in the published formats, for the readers to read."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def idx(array: NDArray[Any]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def images(*shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def fashion_mnist(root: Path, packed: bool = True, train: int = 12, test: int = 4) -> tuple[Bytes, Bytes]:
    folder = root / "fashion-mnist"
    folder.mkdir(parents=True)
    x, y = images(train + test, 28, 28), (np.arange(train + test) % 10).astype(np.uint8)
    for name, array in {
        "train-images-idx3-ubyte": x[:train],
        "train-labels-idx1-ubyte": y[:train],
        "t10k-images-idx3-ubyte": x[train:],
        "t10k-labels-idx1-ubyte": y[train:],
    }.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    return x, y


def cifar10(root: Path, each: int = 2) -> tuple[Bytes, Bytes]:
    folder = root / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    x, y = images(6 * each, 3, 32, 32), (np.arange(6 * each) % 10).astype(np.uint8)
    rows = np.concatenate([y[:, None], x.reshape(len(x), -1)], axis=1)
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / f"{name}.bin").write_bytes(rows[i * each : (i + 1) * each].tobytes())
    return x, y


def cifar100(root: Path) -> tuple[Bytes, Bytes]:
    folder = root / "cifar100" / "cifar-100-binary"
    folder.mkdir(parents=True)
    x, fine = images(6, 3, 32, 32), np.array([99, 0, 5, 7, 50, 3], np.uint8)
    rows = np.concatenate([np.full((6, 1), 19, np.uint8), fine[:, None], x.reshape(6, -1)], axis=1)
    (folder / "train.bin").write_bytes(rows[:5].tobytes())
    (folder / "test.bin").write_bytes(rows[5:].tobytes())
    return x, fine


def gtsrb_images(root: Path, training: str, test_labels: str) -> list[tuple[int, int, int]]:
    """Write plain-coloured PPM images of odd sizes; return their colours, training images by class first."""
    from PIL import Image

    base = root / "gtsrb"
    head = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\n"
    colours: list[tuple[int, int, int]] = []

    def write(folder: Path, table: Path, labels: list[int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        lines = []
        for i, label in enumerate(labels):
            colours.append((10 * len(colours), label, 200))
            Image.new("RGB", (15 + i, 40 - i), colours[-1]).save(folder / f"{i:05d}.ppm")
            lines.append(f"{i:05d}.ppm;{15 + i};{40 - i};1;1;9;9;{label}\n")
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(head + "".join(lines))

    for label in (0, 42):
        folder = base / training / f"{label:05d}"
        write(folder, folder / f"GT-{label:05d}.csv", [label, label])
    write(base / "GTSRB/Final_Test/Images", base / test_labels, [42, 7])
    (base / "GTSRB/Final_Test/Images/GT-final_test.test.csv").write_text("Filename;Width\n")
    return colours
