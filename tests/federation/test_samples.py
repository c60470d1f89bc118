"""The data of one client, in the forms in which a user may have them."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from fupareto.errors import UserError
from fupareto.federation import SimulatedFederation
from fupareto.federation.reading import splits_of
from fupareto.federation.samples import checked, fitted

X, Y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 2, 1])


@pytest.mark.parametrize(
    "held",
    [
        ((X, Y), (X[:2], Y[:2])),
        ((X.numpy(), Y.numpy()), (X[:2].numpy(), Y[:2].numpy())),
        (TensorDataset(X, Y), TensorDataset(X[:2], Y[:2])),
        {"train": (X, Y), "test": TensorDataset(X[:2], Y[:2]), "trigger": (X[3:], Y[3:])},
    ],
    ids=["tensors", "arrays", "datasets", "named sets"],
)
def test_every_form_holds_the_same(held: object) -> None:
    found = checked("a", splits_of("a", held))
    for name, count in (("train", 4), ("test", 2)):
        assert torch.equal(found[name][0], X[:count])
        assert torch.equal(found[name][1], Y[:count])
    assert list(found) == ["train", "test", *(["trigger"] if isinstance(held, dict) else [])]


def test_images_keep_their_values_and_labels_become_whole_numbers() -> None:
    images = torch.arange(2.0 * 3 * 4 * 4).reshape(2, 3, 4, 4)
    x, y = checked("a", {"train": (images.double(), torch.tensor([0, 1], dtype=torch.int32))})["train"]
    assert torch.equal(x, images)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


def test_a_client_without_training_data_is_named() -> None:
    with pytest.raises(UserError, match="client 'north' has no 'train' data"):
        checked("north", {"test": (X, Y)})


@pytest.mark.parametrize(
    ("features", "outputs", "says"),
    [
        (4, 3, r"train data: the model cannot take samples of shape \(3,\)"),
        (3, 2, "train data: labels from 0 to 2"),
        (3, 1, "train data.*binary"),
    ],
)
def test_data_that_do_not_fit_the_model_are_named(features: int, outputs: int, says: str) -> None:
    clients = {"north": checked("north", splits_of("north", {"train": (X, Y), "test": (X, Y)}))}
    fitted(nn.Linear(3, 3), clients)
    with pytest.raises(UserError, match=f"client 'north', {says}"):
        fitted(nn.Linear(features, outputs), clients)


def test_data_that_do_not_fit_those_of_other_clients_are_named() -> None:
    sets = {"south": (X, Y), "north": (X[:, :2], Y)}
    clients = {i: checked(i, splits_of(i, {"train": held})) for i, held in sets.items()}
    with pytest.raises(UserError, match=r"client 'north', train data.*\(2,\).*\(3,\)"):
        fitted(nn.Linear(3, 3), clients)


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "x" * 256])
def test_ids_that_no_file_could_hold_are_refused(name: str) -> None:
    data = {"train": (torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))}
    with pytest.raises(UserError, match="the client ids"):
        SimulatedFederation(nn.Linear(2, 2), {name: data, "2": data})


@pytest.mark.parametrize(
    ("given", "inputs", "targets"),
    [
        (([[1, 2], [3, 4], [5, 6]], [0, 1, 0]), [[1, 2], [3, 4], [5, 6]], [0, 1, 0]),
        (([torch.tensor([1, 2]), torch.tensor([3, 4])], torch.tensor([0, 1])), [[1, 2], [3, 4]], [0, 1]),
        ([[torch.tensor([1, 2]), 0], [torch.tensor([3, 4]), 1]], [[1, 2], [3, 4]], [0, 1]),
        ([([1, 2], 0), ([3, 4], 1)], [[1, 2], [3, 4]], [0, 1]),
    ],
)
def test_columns_and_rows_in_lists(given: object, inputs: list[list[int]], targets: list[int]) -> None:
    found: Any = splits_of("a", {"train": given})["train"]
    assert (found.inputs.tolist(), found.targets.tolist()) == (inputs, targets)


def test_text_and_lists_of_different_lengths_are_refused_in_words() -> None:
    with pytest.raises(UserError, match="turn text into token ids"):
        splits_of("a", {"train": ([["so", "it"]] * 3, [0, 1, 0])})
    with pytest.raises(UserError, match="one entry per sample"):
        splits_of("a", {"train": {"input_ids": [[1], [2]], "labels": [0]}})
