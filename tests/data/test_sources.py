from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fupareto.data import SOURCES, load, status
from fupareto.data.prepared import subset
from fupareto.data.sources import data_root
from fupareto.randomness import stream

from . import files

CIFAR_MEAN = np.array([0.4914, 0.4822, 0.4465]).reshape(1, 3, 1, 1)
CIFAR_STD = np.array([0.2023, 0.1994, 0.2010]).reshape(1, 3, 1, 1)


def close(x: torch.Tensor, expected: NDArray[np.floating]) -> bool:
    return x.dtype == torch.float32 and np.allclose(x.numpy(), expected, atol=1e-6)


def test_digits_are_embedded() -> None:
    data = load("digits")
    assert data.name == "digits"
    assert data.x.shape == (1797, 1, 8, 8)
    assert data.x.dtype == torch.float32
    assert (float(data.x.min()), float(data.x.max())) == (0.0, 1.0)
    assert data.y.dtype == torch.int64
    assert (data.classes, data.train_fraction) == (10, 0.8)


@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist_packed_or_not_keeps_the_order_train_then_test(tmp_path: Path, packed: bool) -> None:
    x, y = files.fashion_mnist(tmp_path, packed)
    data = load("fashion-mnist", tmp_path)
    assert close(data.x, x[:, None] / 255)
    assert data.y.tolist() == y.tolist()
    assert (data.classes, data.train_fraction) == (10, 0.75)


def test_cifar10_is_normalised_by_channel(tmp_path: Path) -> None:
    x, y = files.cifar10(tmp_path)
    data = load("cifar10", tmp_path)
    assert close(data.x, (x / 255 - CIFAR_MEAN) / CIFAR_STD)
    assert data.y.tolist() == y.tolist()
    assert (data.classes, data.train_fraction) == (10, 10 / 12)


def test_cifar100_takes_the_fine_labels(tmp_path: Path) -> None:
    x, y = files.cifar100(tmp_path)
    data = load("cifar100", tmp_path)
    assert close(data.x, (x / 255 - CIFAR_MEAN) / CIFAR_STD)
    assert data.y.tolist() == y.tolist()
    assert (data.classes, data.train_fraction) == (100, 5 / 6)


def test_gtsrb_from_npz(tmp_path: Path) -> None:
    (tmp_path / "gtsrb").mkdir()
    x, y = files.images(8, 32, 32, 3), np.array([0, 42, 1, 1, 2, 3, 4, 5], np.uint8)
    np.savez(tmp_path / "gtsrb/gtsrb.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:], track=y)
    data = load("gtsrb", tmp_path)
    assert close(data.x, x.transpose(0, 3, 1, 2) / 255)
    assert data.x.is_contiguous()
    assert data.y.tolist() == y.tolist()
    assert (data.name, data.classes, data.train_fraction) == ("gtsrb", 43, 0.75)


@pytest.mark.parametrize("training", ["GTSRB/Final_Training/Images", "GTSRB/Training"])
@pytest.mark.parametrize("labels", ["GTSRB/Final_Test/Images/GT-final_test.csv", "GT-final_test.csv"])
def test_gtsrb_from_the_official_images_in_both_layouts(tmp_path: Path, training: str, labels: str) -> None:
    colours = files.gtsrb_images(tmp_path, training, labels)
    assert status(tmp_path)["gtsrb"] == f"on disk at {tmp_path / 'gtsrb'}"
    data = load("gtsrb", tmp_path)
    assert data.x.shape == (6, 3, 32, 32)
    assert close(data.x, np.broadcast_to(np.array(colours)[:, :, None, None] / 255, (6, 3, 32, 32)))
    assert data.y.tolist() == [0, 0, 42, 42, 42, 7]
    assert (data.classes, data.train_fraction) == (43, 4 / 6)


def save(path: Path, **arrays: NDArray[np.generic]) -> str:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


@pytest.mark.parametrize(
    ("stored", "seen"),
    [
        ((6, 20), (6, 20)),
        ((6, 9, 7), (6, 1, 9, 7)),
        ((6, 9, 7, 1), (6, 1, 9, 7)),
        ((6, 9, 7, 3), (6, 3, 9, 7)),
        ((6, 3, 9, 7), (6, 3, 9, 7)),
    ],
)
def test_npz_shapes(tmp_path: Path, stored: tuple[int, ...], seen: tuple[int, ...]) -> None:
    x = files.images(*stored)
    data = load(save(tmp_path / "mine.npz", x=x, y=np.array([0, 1, 2, 0, 1, 2])))
    assert data.x.shape == seen
    assert data.x.is_contiguous()
    moved = x.transpose(0, 3, 1, 2) if len(stored) == 4 and stored[-1] < 4 else x
    assert close(data.x, moved.reshape(seen) / 255)
    assert (data.name, data.classes, data.train_fraction) == ("mine", 3, 0.8)


def test_npz_floats_are_taken_as_they_are_and_the_split_from_the_file(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(10, 4)) * 300
    y = np.array([0, 3] * 5)
    source = save(tmp_path / "a.npz", x_train=x[:7], y_train=y[:7], x_test=x[7:], y_test=y[7:])
    data = load(source)
    assert close(data.x, x.astype(np.float32))
    assert (data.classes, data.train_fraction) == (4, 0.7)


@pytest.mark.parametrize("y", [np.zeros(4, np.int8), np.zeros(4), np.zeros((4, 1), np.int64), np.zeros(4, bool)])
def test_npz_labels_may_be_stored_in_any_integral_way_and_make_two_classes_at_least(
    tmp_path: Path, y: NDArray[np.generic]
) -> None:
    data = load(save(tmp_path / "a.npz", x=np.zeros((4, 2)), y=y))
    assert data.y.dtype == torch.int64
    assert data.y.tolist() == [0, 0, 0, 0]
    assert data.classes == 2


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_a_subset_is_exact_in_size_proportional_by_class_and_in_order(
    counts: list[int], share: float, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    samples = max(1, round(share * len(labels)))
    chosen = subset(labels, samples, stream(seed, "subset"))
    assert len(chosen) == samples
    assert bool((np.diff(chosen) > 0).all())
    for k, count in enumerate(counts):
        assert abs((labels[chosen] == k).sum() - count * samples / len(labels)) < 1
    assert np.array_equal(chosen, subset(labels, samples, stream(seed, "subset")))


def test_loading_a_subset_takes_rows_of_the_pool_by_the_seed() -> None:
    whole, part, again, other = (
        load("digits", samples=n, seed=s) for n, s in ((None, 0), (100, 0), (100, 0), (100, 1))
    )
    chosen = subset(whole.y.numpy(), 100, stream(0, "subset"))
    assert torch.equal(part.x, whole.x[chosen])
    assert torch.equal(part.y, whole.y[chosen])
    assert torch.equal(part.x, again.x)
    assert not torch.equal(part.x, other.x)
    assert (part.classes, part.train_fraction) == (10, 0.8)


def test_the_root_is_the_argument_then_the_environment_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUPARETO_DATA", str(tmp_path / "env"))
    assert data_root(tmp_path) == tmp_path
    assert data_root() == tmp_path / "env"
    files.cifar100(tmp_path / "env")
    assert len(load("cifar100").x) == 6
    monkeypatch.delenv("FUPARETO_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache/fupareto/data"


def test_status_says_where_each_source_is(tmp_path: Path) -> None:
    files.fashion_mnist(tmp_path)
    files.cifar10(tmp_path)
    (tmp_path / "cifar10/cifar-10-batches-bin/data_batch_3.bin").unlink()
    embedded = ["breast-cancer", "diabetes", "stdlib"]
    assert list(SOURCES) == ["digits", "fashion-mnist", "cifar10", "cifar100", "gtsrb", *embedded]
    assert status(tmp_path) == {
        "digits": "embedded",
        "fashion-mnist": f"on disk at {tmp_path / 'fashion-mnist'}",
        "cifar10": "missing",
        "cifar100": "missing",
        "gtsrb": "missing",
        **dict.fromkeys(embedded, "embedded"),
    }
