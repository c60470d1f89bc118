"""Rebuilding a forgotten sample from what a server keeps: from a raw gradient, and from everything in a run directory.

The gradient of the first dense layer for one sample is an outer product: a row of the weights divided by the same entry
of the bias is the sample itself.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import fupareto
from fupareto import FedAvg, FUPareto, Request
from fupareto.federation.request import VIRTUAL
from fupareto.methods.fupareto.recovery import GUARDS, ask_guards
from fupareto.methods.sequential import Sequential

INPUTS, HIDDEN, CLASSES = 64, 24, 10
METHOD = FUPareto(rounds=3, recovery_rounds=4, lr=0.05)
FORGET = {"a": (3,)}


class Cut(BaseException):
    """The process ends here."""


def samples(seed: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, INPUTS, generator=generator), torch.randint(CLASSES, (count,), generator=generator)


@pytest.fixture(scope="module")
def federation() -> fupareto.Federation:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    return fupareto.simulate(model, {n: (samples(k, 40), samples(9 + k, 20)) for k, n in enumerate("abc")}, workers=1)


@pytest.fixture(scope="module")
def trained(federation: fupareto.Federation) -> fupareto.Result:
    return fupareto.train(federation, federation.fresh(0), FedAvg(rounds=3, batch_size=10, lr=0.1))


def rebuilt(vectors: Iterator[Tensor], forgotten: Tensor) -> int:
    """Return how many forgotten samples can be had from vectors of the model's size, to within 1/255."""
    found = set()
    for v in vectors:
        weights, bias = v[: INPUTS * HIDDEN].view(HIDDEN, INPUTS), v[INPUTS * HIDDEN :][:HIDDEN]
        candidates = weights / bias[:, None]
        near = (candidates[:, None] - forgotten[None]).abs().amax(2) <= 1 / 255
        found |= set(near.any(0).nonzero().flatten().tolist())
    return len(found)


def vectors_in(place: Path) -> Iterator[Tensor]:
    """Yield every vector of the model's size in the files of a run, however it is packed, and all differences."""
    size = INPUTS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES
    held: list[Tensor] = []
    for path in sorted(place.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            start = 8 + int.from_bytes(data[:8], "little") if path.suffix == ".safetensors" else 0
            numbers = torch.frombuffer(bytearray(data[start:]), dtype=torch.uint8)
            if path.suffix == ".safetensors":
                tensors = safetensors.torch.load(data)
                flat = torch.cat([t.flatten().float() for t in tensors.values() if t.is_floating_point()])
                held += [flat[k : k + size] for k in range(0, flat.numel() - size + 1, size)]
                whole = numbers[: numbers.numel() // 4 * 4].view(torch.float32)
                held += [whole[k : k + size] for k in range(0, whole.numel() - size + 1, size)]
    yield from held
    for one, other in itertools.combinations(held, 2):
        yield one - other


def forgotten_samples(federation: Any) -> Tensor:
    x: Tensor = federation.clients["a"]["train"][0][list(FORGET["a"])]
    return x


def test_the_attack_works_on_a_guard(federation: Any, trained: fupareto.Result) -> None:
    """What the run directory held before: the guards, raw gradients of one sample."""
    divided = federation.divided(Request(samples=FORGET))
    w = trained.outcome.model("initial")
    assert w is not None
    guards, found, absent = ask_guards(divided, w, dict.fromkeys(GUARDS, ("a" + VIRTUAL,)))
    assert (set(found), absent) == ({"ce", "mbs"}, {})
    assert rebuilt(iter(guards), forgotten_samples(federation)) == 1


def cut_in_recovery(record: dict[str, Any]) -> None:
    if record["stage"] == "recovered" and record["round"] >= 5:
        raise Cut


def test_nothing_in_a_run_directory_gives_the_sample(federation: Any, trained: fupareto.Result, tmp_path: Path) -> None:
    forgotten = forgotten_samples(federation)
    request = Request(samples=FORGET)
    whole = fupareto.unlearn(federation, trained, request, METHOD, out=tmp_path / "whole")
    assert any(r["stage"] == "recovered" for r in whole.rounds)
    with pytest.raises(Cut):
        fupareto.unlearn(federation, trained, request, METHOD, out=tmp_path / "cut", watch=cut_in_recovery)
    assert (tmp_path / "cut/checkpoint/state.safetensors").is_file()
    assert rebuilt(vectors_in(tmp_path / "cut"), forgotten) == 0  # while it runs
    assert rebuilt(vectors_in(tmp_path / "whole"), forgotten) == 0  # and after
    again = fupareto.unlearn(federation, trained, request, METHOD, out=tmp_path / "cut", resume=True)
    for stage in ("unlearned", "recovered"):  # the guards were asked for again
        for name, tensor in whole.model(stage).items():
            assert torch.equal(again.model(stage)[name], tensor)
    assert [{**r, "seconds": 0} for r in again.rounds] == [{**r, "seconds": 0} for r in whole.rounds]


def test_guards_of_clients_one_by_one_are_not_stored(federation: Any, trained: fupareto.Result, tmp_path: Path) -> None:
    method = Sequential(METHOD, 2)
    whole = fupareto.unlearn(federation, trained, ["a", "b"], method, out=tmp_path / "whole")

    def cut(record: dict[str, Any]) -> None:
        if record["stage"] == "recovered" and record.get("request") == "b":
            raise Cut

    with pytest.raises(Cut):
        fupareto.unlearn(federation, trained, ["a", "b"], method, out=tmp_path / "cut", watch=cut)
    size = 4 * (INPUTS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
    assert (tmp_path / "cut/checkpoint/state.safetensors").stat().st_size < 4 * size  # w, and w and w0 of the method
    again = fupareto.unlearn(federation, trained, ["a", "b"], method, out=tmp_path / "cut", resume=True)
    for name, tensor in whole.model("recovered").items():
        assert torch.equal(again.model("recovered")[name], tensor)
    assert [{**r, "seconds": 0} for r in again.rounds] == [{**r, "seconds": 0} for r in whole.rounds]


@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_a_group_hides_what_few_samples_show(count: int) -> None:
    """Measured on one gradient: few samples can be rebuilt; in a group of 64, none of those asked for."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    clients = {n: (samples(k, 100), samples(9 + k, 20)) for k, n in enumerate("ab")}
    federation = fupareto.simulate(model, clients, workers=1)
    asked = Request(samples={"a": tuple(range(min(count, 5)))})
    assert asked.exposed()
    request = asked.grouped(client_of(a=100), count, seed=0)
    assert len(request.samples["a"]) == count
    assert request.samples["a"][: len(asked.samples["a"])] == asked.samples["a"]
    assert bool(request.exposed()) == (count < 64)
    divided = federation.divided(request)
    guards, _, _ = ask_guards(divided, federation.fresh(0), dict.fromkeys(GUARDS, ("a" + VIRTUAL,)))
    rebuilt_ones = rebuilt(iter(guards), clients["a"][0][0][list(asked.samples["a"])])
    assert (rebuilt_ones > 0) == (count < 64)


def client_of(**sizes: int) -> dict[str, dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """Clients with as many samples of the classes 0, 1 and 2 in turn."""
    return {i: {"train": (torch.zeros(n, 1), torch.arange(n) % 3)} for i, n in sizes.items()}


def test_a_group_is_drawn_by_the_seed_and_no_larger_than_the_client() -> None:
    asked = Request(samples={"a": (3, 1), "b": (0,)})
    clients = client_of(a=10, b=200)
    one, same, other = (asked.grouped(clients, 20, seed) for seed in (1, 1, 2))
    assert one == same
    assert one.samples["b"] != other.samples["b"]
    assert sorted(one.samples["a"]) == list(range(10))
    assert len(set(one.samples["b"])) == 20


ROWS = st.sets(st.integers(0, 29))


@given(ROWS.filter(bool), ROWS, st.integers(0, 40))
def test_what_was_forgotten_before_is_not_counted_in_a_group(rows: set[int], before: set[int], group: int) -> None:
    asked = Request(samples={"a": tuple(rows)}).after(Request(samples={"a": tuple(before)}))
    request = asked.grouped(client_of(a=30), group, seed=0)
    new = set(request.samples["a"]) - before
    assert set(request.samples["a"]) - new == rows & before  # none of those before is drawn
    enough = min(max(group, len(rows - before)), 30 - len(before))
    assert len(new) == (enough if rows - before else 0)
    assert (f"Only {len(new)} sample" in request.exposed()) == bool(new)  # fewer than 64 in any case


def test_classes_that_were_forgotten_before_are_not_in_a_group() -> None:
    asked = Request(samples={"a": (0, 1)}).after(Request(classes=(1,)))
    request = asked.grouped(client_of(a=30), 10, seed=0)
    drawn = set(request.samples["a"]) - {1}  # row 1 is of class 1, so it is in no gradient and does not count
    assert len(drawn) == 10
    assert all(row % 3 != 1 for row in drawn)
