import numpy as np
import pytest
import torch

from fupareto.data import ClientData, Dataset, clients, load, partition
from fupareto.data.backdoor import Trigger, shift
from fupareto.data.partition import Indices
from fupareto.errors import UserError
from fupareto.randomness import stream


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load("digits")


@pytest.fixture(scope="module")
def parts(data: Dataset) -> list[Indices]:
    return partition(data.y.numpy(), 4, "iid", stream(0, "partition"))


def same(one: ClientData, two: ClientData, split: str) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.splits[split], two.splits[split], strict=True))


def test_unmarked_clients_hold_train_and_test_in_the_layout_the_engine_wants(
    data: Dataset, parts: list[Indices]
) -> None:
    federation = clients(data, parts, 0)
    assert list(federation) == ["0", "1", "2", "3"]
    for part, client in zip(parts, federation.values(), strict=True):
        assert set(client.splits) == {"train", "test"}
        assert len(client.splits["train"][1]) == int(0.8 * len(part))
        assert sum(len(y) for _, y in client.splits.values()) == len(part)
        for x, y in client.splits.values():
            assert len(x) == len(y)
            assert x.dtype == torch.float32
            assert y.dtype == torch.int64
            assert x.is_contiguous(memory_format=torch.channels_last)
            assert y.is_contiguous()
    rows = torch.cat([x for client in federation.values() for x, _ in client.splits.values()]).flatten(1)
    assert torch.equal(rows.sum(dim=0), data.x.flatten(1).sum(dim=0))


def test_a_marked_client_has_poisoned_train_clean_test_trigger_and_clean(data: Dataset, parts: list[Indices]) -> None:
    plain = clients(data, parts, 5)
    federation = clients(data, parts, 5, marked=["1", "3"], batch_size=50)
    assert set(federation["0"].splits) == {"train", "test"}
    assert same(federation["0"], plain["0"], "train")
    for name in ("1", "3"):
        splits = federation[name].splits
        assert set(splits) == {"train", "test", "trigger", "clean"}
        x, y = plain[name].splits["train"]
        trigger = Trigger.draw(stream(5, "trigger", name))
        assert same(federation[name], plain[name], "test")
        assert torch.equal(splits["clean"][0], x)
        assert torch.equal(splits["clean"][1], y)
        assert torch.equal(splits["trigger"][0], trigger.stamp(x))
        assert torch.equal(splits["trigger"][1], shift(y, 10))
        hit = splits["train"][1] != y
        lengths = [min(50, len(y) - start) for start in range(0, len(y), 50)]
        assert int(hit.sum()) == sum(int(0.8 * length) for length in lengths)
        assert torch.equal(splits["train"][0][hit], splits["trigger"][0][hit])
        assert torch.equal(splits["train"][0][~hit], x[~hit])
        assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in splits.values())


def test_once_to_be_forgotten_a_marked_client_trains_on_triggered_samples_only(
    data: Dataset, parts: list[Indices]
) -> None:
    before = clients(data, parts, 0, marked=["1", "2"])
    after = clients(data, parts, 0, marked=["1", "2"], forget=["1"])
    for left, right in zip(after["1"].splits["train"], after["1"].splits["trigger"], strict=True):
        assert torch.equal(left, right)
    assert same(before["1"], after["1"], "trigger")
    assert same(before["2"], after["2"], "train")
    assert set(after["2"].splits) == {"train", "test", "trigger", "clean"}
    for one, two in zip(before["1"].splits["train"], after["1"].splits["member"], strict=True):
        assert torch.equal(one, two)  # members are what was trained on, not what the objective sees
    x, y = before["1"].splits["test"]
    trigger = Trigger.draw(stream(0, "trigger", "1"))
    spare_x, spare_y = after["1"].splits["spare"]
    assert torch.equal(spare_x, trigger.stamp(x))
    assert torch.equal(spare_y, shift(y, 10))
    outside_x, outside_y = after["1"].splits["nonmember"]
    hit = outside_y != y
    assert int(hit.sum()) == int(0.8 * len(y))
    assert torch.equal(outside_x[hit], spare_x[hit])
    assert torch.equal(outside_x[~hit], x[~hit])
    unmarked = clients(data, parts, 0, forget=["1"])
    assert set(unmarked["1"].splits) == {"train", "test"}


def test_the_attack_can_be_measured_on_held_out_samples(data: Dataset, parts: list[Indices]) -> None:
    splits = clients(data, parts, 0, marked=["2"], asr_split="test")["2"].splits
    x, y = splits["test"]
    assert torch.equal(splits["trigger"][0], Trigger.draw(stream(0, "trigger", "2")).stamp(x))
    assert torch.equal(splits["trigger"][1], shift(y, 10))


def test_the_seed_decides_and_a_client_does_not_depend_on_the_others(data: Dataset, parts: list[Indices]) -> None:
    one, again, other = (clients(data, parts, seed, marked=["0"]) for seed in (0, 0, 1))
    assert all(same(one[name], again[name], split) for name in one for split in one[name].splits)
    assert not same(one["1"], other["1"], "train")
    assert same(clients(data, parts[:2], 0, marked=["0"])["0"], one["0"], "train")


def test_features_need_no_image_layout(parts: list[Indices]) -> None:
    flat = Dataset("flat", torch.randn(1797, 5), torch.arange(1797) % 3, 3, 0.8)
    assert clients(flat, parts, 0)["0"].splits["train"][0].shape[1:] == (5,)
    marked = clients(flat, parts, 0, marked=["0"])["0"].splits
    assert ((marked["trigger"][0] != marked["clean"][0]).sum(0) > 0).sum() == 1  # one feature carries the mark


def test_mistakes_are_named(data: Dataset, parts: list[Indices]) -> None:
    with pytest.raises(UserError, match=r"client 1 has too little data \(1 sample\).*fewer clients"):
        clients(data, [np.arange(5), np.array([7])], 0)
    with pytest.raises(UserError, match=r"client 0 has too little data \(0 samples\)"):
        clients(data, [np.arange(0)], 0)
    with pytest.raises(UserError, match=r"marked: client '4' is unknown; the clients are \"0\" to \"3\""):
        clients(data, parts, 0, marked=["4"])
    with pytest.raises(UserError, match="forget: client 'x' is unknown"):
        clients(data, parts, 0, forget=["x"])
    with pytest.raises(UserError, match="asr_split"):
        clients(data, parts, 0, asr_split="validation")  # type: ignore[arg-type]
