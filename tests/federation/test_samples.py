"""The data of one client, in the forms in which a user may have them."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from fupareto.errors import UserError
from fupareto.federation import SimulatedFederation
from fupareto.federation.samples import check_fit, checked, splits_of

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
    ("shape", "outputs", "says"),
    [((4,), 3, r"test data.*\(3,\).*\(4,\)"), ((3,), 2, "test data.*2"), ((3,), 1, "test data")],
)
def test_data_that_do_not_fit_the_federation_are_named(shape: tuple[int, ...], outputs: int, says: str) -> None:
    splits = splits_of("north", {"test": (X, Y)})
    check_fit("north", splits, (3,), 3)
    with pytest.raises(UserError, match=f"client 'north', {says}"):
        check_fit("north", splits, shape, outputs)


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "x" * 256])
def test_ids_that_no_file_could_hold_are_refused(name: str) -> None:
    data = {"train": (torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))}
    with pytest.raises(UserError, match="the client ids"):
        SimulatedFederation(nn.Linear(2, 2), {name: data, "2": data})
