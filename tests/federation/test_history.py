"""What the server kept: which rounds, how much of the disk, and what is said when a file is not what it was."""

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fupareto import seal
from fupareto.errors import UserError
from fupareto.federation.history import PARTS, History, Plan
from fupareto.methods.registry import METHODS

CLIENTS = ("a", "b", "client with spaces/and a slash")
PLAN = Plan(PARTS, CLIENTS, rounds=6, keep=3, heads=("b",), label_seed=4)
W = torch.linspace(-1.0, 1.0, 50_000)
HEAD = torch.linspace(0.0, 1.0, 20_000)
Usage = namedtuple("Usage", "total used free")


def filled(path: Path, plan: Plan = PLAN) -> History:
    """Keep everything that the plan says, as training would."""
    history = History.create(path, plan, 0)
    for round_ in range(plan.rounds):
        if round_ in plan.replayed:
            history.keep_before(round_, W)
            for i in plan.clients:
                history.keep_local(round_, i, W, 7)
            history.keep_clients(round_, plan.clients)
        if round_ in plan.rewound:
            history.keep_global(round_, W)
        history.keep_heads(round_, dict.fromkeys(plan.heads, HEAD))
    for i in plan.clients:
        history.keep_last(i, W, 7)
    history.keep_clients(None, plan.clients)
    return history


def size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


# Which rounds --------------------------------------------------------------------------------------------------


@given(st.integers(1, 3000), st.integers(1, 300))
def test_kept_rounds_are_evenly_spaced_from_the_first_on(rounds: int, keep: int) -> None:
    kept = Plan(("federaser",), CLIENTS, rounds, keep).replayed
    assert len(kept) == min(rounds, keep)
    assert kept[0] == 0
    assert kept[-1] < rounds
    gaps = {b - a for a, b in zip(kept, (*kept[1:], rounds), strict=True)}
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1


def test_the_papers_budget_is_every_twentieth_round() -> None:
    assert Plan(("federaser",), CLIENTS, rounds=2000).replayed == tuple(range(0, 2000, 20))
    assert Plan(("federaser",), CLIENTS, rounds=3).replayed == (0, 1, 2)


def test_every_part_is_a_methods() -> None:
    assert {m.history for m in METHODS.values() if m.history} == set(PARTS)


# How much ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", PARTS)
def test_the_size_said_beforehand_is_what_lands_on_disk(tmp_path: Path, part: str) -> None:
    filled(tmp_path)
    said = PLAN.bytes(W.numel(), HEAD.numel())
    landed = size(tmp_path / part)
    if part == "fedau":  # the round before the last stays too, in case the last is cut off
        assert len(list((tmp_path / part).iterdir())) == 2
        landed //= 2
    assert landed == pytest.approx(said[part], rel=0.02)


def test_sizes_by_hand() -> None:
    plan = Plan(PARTS, tuple(map(str, range(20))), rounds=2000, heads=("1", "2"))
    assert plan.bytes(61_706, 850) == {  # PROTOCOL B.1: 518 MB
        "federaser": 100 * 21 * 61_706 * 4,
        "fupga": 20 * 61_706 * 4,
        "fedau": 2 * 850 * 4,
        "rewind": 22 * 61_706 * 4,
        "ridge": 0,
    }
    assert Plan((), CLIENTS, rounds=5).bytes(10, 2) == {}


def test_a_disk_that_is_too_small_is_refused_before_anything_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 5_000_000))
    with pytest.raises(UserError, match=r"recording needs 6 MB in .*, but 5 MB are free; .*keep fewer rounds"):
        History.create(tmp_path / "history", PLAN, 6_000_000)
    assert size(tmp_path) == 0
    assert History.open(tmp_path / "history") is None
    assert History.create(tmp_path / "history", PLAN, 4_000_000).plan == PLAN


# There and back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_killed_training_left_half_written_is_removed(tmp_path: Path, begun: bool) -> None:
    if begun:  # killed after the index was written, or while it was
        History.create(tmp_path, PLAN, 0)
    part = tmp_path / f".fupareto-{16 * 'a'}.part"
    part.write_bytes(b"half of")
    History.create(tmp_path, PLAN, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["index.json"]


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    history = History.create(tmp_path, PLAN, 0)
    one, two = torch.randn(5, generator=torch.Generator().manual_seed(0)), torch.ones(4)
    history.keep_before(2, one)
    history.keep_local(2, CLIENTS[2], two.view(2, 2).T.reshape(-1), 3)
    history.keep_clients(2, [CLIENTS[2]])
    history.keep_last("a", one, 9)
    history.keep_clients(None, ["a"])
    history.keep_heads(5, {"b": two, "a": one})
    again = History.open(tmp_path)
    assert again is not None
    assert again.plan == PLAN
    assert torch.equal(again.before(2), one)
    local, last = again.local(2, CLIENTS[2]), again.last("a")
    assert local is not None
    assert torch.equal(local[0], two)
    assert local[1] == 3
    assert last is not None
    assert torch.equal(last[0], one)
    assert last[1] == 9
    assert {i: h.tolist() for i, h in again.heads().items()} == {"b": two.tolist(), "a": one.tolist()}


def test_whoever_took_no_part_has_nothing(tmp_path: Path) -> None:
    history = History.create(tmp_path, PLAN, 0)
    history.keep_clients(0, ["b"])
    history.keep_clients(None, [])
    assert history.local(0, "a") is None
    assert history.last("a") is None
    assert history.heads(-1) == {}


@pytest.mark.parametrize(
    "name", ["federaser/00000/000.safetensors", "federaser/00000/clients.json", "fupga/000.safetensors"]
)
def test_a_missing_file_is_not_a_client_that_took_no_part(tmp_path: Path, name: str) -> None:
    history = filled(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=rf"{name} is missing or damaged .*--record"):
        history.local(0, "a"), history.last("a")


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    history = filled(tmp_path, Plan(("fupga",), ("a",), rounds=1))
    file = tmp_path / "fupga/000.safetensors"
    whole = file.read_bytes()
    for at in (*range(0, 150, 3), *range(150, len(whole), 9973)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(UserError, match="missing or damaged"):
            history.last("a")


def test_only_the_last_two_rounds_of_heads_stay(tmp_path: Path) -> None:
    history = filled(tmp_path)
    assert sorted(p.name for p in (tmp_path / "fedau").iterdir()) == ["00004.safetensors", "00005.safetensors"]
    assert set(history.heads(4)) == set(history.heads(5)) == {"b"}


def test_opening_again_needs_the_same_plan(tmp_path: Path) -> None:
    filled(tmp_path)
    assert History.create(tmp_path, PLAN, 10**15).path == tmp_path  # nothing more is needed
    with pytest.raises(UserError, match="contains another history; resume with the settings"):
        History.create(tmp_path, Plan(PARTS, CLIENTS, rounds=7, keep=3, heads=("b",), label_seed=4), 0)


def test_no_history_is_none(tmp_path: Path) -> None:
    assert History.open(tmp_path) is None
    assert History.open(tmp_path / "nothing") is None


# Damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{", "[1]", "null", '{"parts": ["fupga"]}', '{"colour": "red"}', ""])
def test_a_damaged_index_is_the_users_error(tmp_path: Path, text: str) -> None:
    filled(tmp_path)
    (tmp_path / "index.json").write_text(text)
    history = History.open(tmp_path)
    assert history is not None
    with pytest.raises(UserError, match=r"index\.json is damaged"):
        _ = history.plan


@pytest.mark.parametrize("name", ["index.json", "federaser/00000/clients.json", "fupga/clients.json"])
def test_another_value_in_a_document_is_found(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    text = (tmp_path / name).read_text()
    assert '"b"' in text
    (tmp_path / name).write_text(text.replace('"b"', '"B"'))
    history = History.open(tmp_path)
    assert history is not None
    with pytest.raises(UserError, match=rf"{name} is .*damaged.*SHA-256"):
        history.local(0, "a"), history.last("a")


def test_a_history_of_the_format_before_is_read(tmp_path: Path) -> None:
    filled(tmp_path)
    for path in tmp_path.rglob("*.json"):
        found = seal.check_document(json.loads(path.read_text()))
        found = {**found, "format": 2} if path.name == "index.json" else found["clients"]
        path.write_text(json.dumps(found))
    history = History.open(tmp_path)
    assert history is not None
    assert history.plan == PLAN
    assert history.last("a") is not None


@pytest.mark.parametrize("keep", [0, 10, 100_000], ids=["empty", "header", "half"])
@pytest.mark.parametrize("name", ["federaser/00000/before", "federaser/00000/000", "fupga/000", "fedau/00005"])
def test_a_damaged_file_is_the_users_error(tmp_path: Path, name: str, keep: int) -> None:
    history = filled(tmp_path)
    file = tmp_path / f"{name}.safetensors"
    file.write_bytes(file.read_bytes()[: min(keep, file.stat().st_size // 2)])
    with pytest.raises(UserError, match=rf"{name}\.safetensors is missing or damaged .*--record"):
        history.before(0), history.local(0, "a"), history.last("a"), history.heads()


def test_a_missing_global_model_is_the_users_error(tmp_path: Path) -> None:
    history = filled(tmp_path)
    (tmp_path / "federaser/00002/before.safetensors").unlink()
    with pytest.raises(UserError, match="missing or damaged"):
        history.before(2)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = filled(tmp_path)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*No space left on device; free disk space .*--resume"):
        history.keep_last("a", -W, 7)
    last = history.last("a")
    assert last is not None
    assert torch.equal(last[0], W)
    assert not list(tmp_path.rglob(".*.part"))


def test_the_index_can_be_read_by_people(tmp_path: Path) -> None:
    filled(tmp_path)
    raw = seal.check_document(json.loads((tmp_path / "index.json").read_text()))
    assert raw == {
        "format": 3,
        "parts": list(PARTS),
        "clients": list(CLIENTS),
        "rounds": 6,
        "keep": 3,
        "heads": ["b"],
        "label_seed": 4,
        "continued": False,
    }
