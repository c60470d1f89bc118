"""Every way in which a data file can be wrong ends in a message that names the file."""

import gzip
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fupareto.data import load
from fupareto.errors import UserError

from . import files


def fails(source: str, root: Path, words: str, samples: int | None = None) -> str:
    with pytest.raises(UserError, match=words) as caught:
        load(source, root, samples)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("fashion-mnist", "train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar-10-batches-bin/data_batch_1.bin"),
        ("cifar100", "cifar-100-binary/test.bin"),
        ("gtsrb", "GTSRB/Final_Training/Images/00000/GT-00000.csv"),
        ("gtsrb", "GTSRB/Final_Test/Images/GT-final_test.csv"),
    ],
)
def test_a_missing_set_says_which_file_to_put_where_and_how_to_get_it(tmp_path: Path, source: str, file: str) -> None:
    message = fails(source, tmp_path, "not on disk")
    assert str(tmp_path / source / file) in message
    assert f"`fupareto data get {source}`" in message


def test_only_what_is_missing_is_named(tmp_path: Path) -> None:
    files.cifar10(tmp_path)
    (tmp_path / "cifar10/cifar-10-batches-bin/test_batch.bin").unlink()
    message = fails("cifar10", tmp_path, "test_batch.bin")
    assert "data_batch_1" not in message


def test_an_unknown_source_lists_the_known_ones(tmp_path: Path) -> None:
    fails("mnist", tmp_path, "unknown data 'mnist'; choose one of digits, fashion-mnist")


@pytest.mark.parametrize("samples", [0, -1, 1798])
def test_a_subset_larger_than_the_pool(tmp_path: Path, samples: int) -> None:
    fails("digits", tmp_path, "between 1 and 1797", samples)


IMAGES = np.zeros((12, 28, 28))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("train-images-idx3-ubyte", gzip.compress(files.idx(IMAGES)[:-5]), "header says 9424"),
        ("train-images-idx3-ubyte", gzip.compress(files.idx(IMAGES) + b"x"), "header says 9424"),
        ("train-images-idx3-ubyte", gzip.compress(files.idx(IMAGES))[:-20], "truncated"),
        ("train-images-idx3-ubyte", gzip.compress(files.idx(IMAGES)[:9]), "header says"),
        ("train-images-idx3-ubyte", gzip.compress(b"\x00\x00\x0d\x03" + bytes(12)), "not an IDX file"),
        ("train-images-idx3-ubyte", gzip.compress(b""), "not an IDX file"),
        ("train-images-idx3-ubyte", b"<html>Not found</html>", "cannot be read"),
        ("train-images-idx3-ubyte", gzip.compress(files.idx(IMAGES[:11])), "11 training samples but 12"),
        ("train-images-idx3-ubyte", gzip.compress(files.idx(IMAGES[:, 0, 0])), "1 dimensions, not 3"),
        ("train-images-idx3-ubyte", gzip.compress(files.idx(np.zeros((12, 27, 28)))), "shapes must be equal"),
        ("train-labels-idx1-ubyte", gzip.compress(files.idx(np.full(12, 10))), "label 10 is out of range"),
        ("t10k-labels-idx1-ubyte", gzip.compress(files.idx(np.zeros(0))), "4 test samples but 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",  # gzip writes the time, and ids must not change
)
def test_idx_files(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    files.fashion_mnist(tmp_path)
    (tmp_path / "fashion-mnist" / f"{name}.gz").write_bytes(content)
    assert "fashion-mnist" in fails("fashion-mnist", tmp_path, words)


def test_an_empty_test_part(tmp_path: Path) -> None:
    files.fashion_mnist(tmp_path, test=0)
    fails("fashion-mnist", tmp_path, "no test samples")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b[:-1], "not a multiple of 3073"),
        (lambda b: b"", "0 bytes"),
        (lambda b: b"\x0a" + b[1:], "label 10 is out of range"),
    ],
)
def test_cifar_files(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    files.cifar10(tmp_path)
    path = tmp_path / "cifar10/cifar-10-batches-bin/data_batch_2.bin"
    path.write_bytes(change(path.read_bytes()))
    fails("cifar10", tmp_path, words)


def test_gtsrb_images(tmp_path: Path) -> None:
    files.gtsrb_images(tmp_path, "GTSRB/Training", "GT-final_test.csv")
    table, image = tmp_path / "gtsrb/GT-final_test.csv", tmp_path / "gtsrb/GTSRB/Training/00042/00001.ppm"
    good = table.read_text()
    for bad in (good.replace("ClassId", "Class"), good.replace(";42\n", ";stop\n"), good + "00002.ppm;1\n"):
        table.write_text(bad)
        fails("gtsrb", tmp_path, "GT-final_test.csv is not a table")
    table.write_text(good)
    for content in (b"not an image", image.read_bytes()[:100]):
        image.write_bytes(content)
        fails("gtsrb", tmp_path, "00001.ppm cannot be read as an image")
    image.unlink()
    fails("gtsrb", tmp_path, "00001.ppm cannot be read as an image")


X, Y = np.zeros((4, 2)), np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.array([[0, np.nan]] * 4), "y": Y}, "NaN or infinite"),
        ({"x": np.array([[0, -np.inf]] * 4), "y": Y}, "NaN or infinite"),
        ({"x": np.full((4, 2), 1e300), "y": Y}, "NaN or infinite"),
        ({"x": np.zeros((4, 2, 2), np.int64), "y": Y}, "samples are int64"),
        ({"x": np.zeros((4, 2), complex), "y": Y}, "samples are complex128"),
        ({"x": np.zeros(4), "y": Y}, "samples have shape"),
        ({"x": np.zeros((4, 5, 5, 2)), "y": Y}, "1 or 3 channels"),
        ({"x": np.zeros((4, 1, 2, 3, 4)), "y": Y}, "samples have shape"),
        ({"x": X, "y": np.array([0, 1, -1, 0])}, "label -1 is negative"),
        ({"x": X, "y": np.array([0, 1, 0.5, 0])}, "must be integers"),
        ({"x": X, "y": np.array([0, 1, np.nan, 0])}, "must be integers"),
        ({"x": X, "y": np.array(["a", "b", "a", "b"])}, "must be integers"),
        ({"x": X, "y": np.eye(4)}, "one number per sample"),
        ({"x": X, "y": np.array(3)}, "one number per sample"),
        ({"x": X, "y": Y[:3]}, "4 samples but 3 labels"),
        ({"x": X[:0], "y": Y[:0]}, "no samples"),
        ({"x": np.zeros((4, 0)), "y": Y}, "no samples"),
        ({"x": np.array([[object()]] * 4), "y": Y}, "object arrays are refused"),
        ({"x": X, "y": Y.astype(object)}, "object arrays are refused"),
        ({"images": X, "labels": Y}, "it must contain x_train, y_train, x_test, y_test, or x and y"),
        ({"x_train": X, "y_train": Y}, "it must contain"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y[:2]}, "4 test samples but 2 test labels"),
        ({"x_train": X, "y_train": Y, "x_test": X[:0], "y_test": Y[:0]}, "no test samples"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :1], "y_test": Y}, "shapes must be equal"),
    ],
)
def test_npz_contents(
    tmp_path: Path, arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]], words: str
) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    assert str(path) in fails(str(path), tmp_path, words)


def test_npz_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    fails(str(path), tmp_path, "does not exist")
    path.mkdir()
    fails(str(path), tmp_path, "does not exist")
    path.rmdir()
    path.write_bytes(b"\x80\x04pickle?")
    fails(str(path), tmp_path, "not an .npz archive")
    with path.open("wb") as file:
        np.save(file, X)
    fails(str(path), tmp_path, "not an .npz archive")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"no array")
        archive.writestr("y.npy", b"no array")
    fails(str(path), tmp_path, "not arrays")
    np.savez(path, x=np.arange(4000.0).reshape(1000, 4), y=np.zeros(1000, int))
    content = bytearray(path.read_bytes())
    content[5000:5008] = bytes(8)
    path.write_bytes(content)
    fails(str(path), tmp_path, "cannot be read")
