"""Replay: rounds computed again from kept states; whatever option was forged, if it acted at all, is found."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fupareto
from fupareto.evidence import FAILED, OK
from fupareto.federation import Federation, Request
from fupareto.federation.wrappers import Without
from fupareto.methods import FedAvg, FUPareto, Method
from fupareto.methods.fedosd import FedOSD
from fupareto.methods.mode import MoDe
from fupareto.run import replay
from fupareto.run.directory import Run
from fupareto.verification import replayed
from methods import blobs
from presets import guard

FORGET = Request(("0",))
TRAINING = FedAvg(rounds=12, lr=0.3, batch_size=4)
METHODS: dict[str, Method] = {
    "renewing": FUPareto(rounds=3, recovery_rounds=3, lr=0.2, training=TRAINING),
    "guard": guard(rounds=4, recovery_rounds=3, lr=0.1),
    "fedosd": FedOSD(rounds=3, recovery_rounds=2, lr=0.01, recovery_lr=0.01, batch_size=4),
    "mode": MoDe(rounds=3, recovery_rounds=1, batch_size=4),
}
FORGED: list[tuple[str, dict[str, Any], bool]] = [  # an option, and whether it acts in a round that is always kept
    ("renewing", {"lr": 0.5}, True),
    ("renewing", {"s": 2}, True),
    ("renewing", {"recovery_lr": 0.3}, True),
    ("renewing", {"recovery_rounds": 9}, True),
    ("renewing", {"recovery": "none"}, True),
    ("renewing", {"rounds": 2}, False),  # fewer than were made: only the round after the second would be another one
    ("guard", {"lr": 0.3}, True),
    ("guard", {"guidance": "off"}, True),
    ("guard", {"rounds": 9}, True),
    ("guard", {"expansion_harm": 0.01}, False),  # acts if an expansion does harm
    ("guard", {"expansion_fallback": "skip"}, False),
    ("fedosd", {"lr": 0.02}, True),
    ("fedosd", {"recovery_lr": 0.05}, True),
    ("fedosd", {"recovery_rounds": 5}, True),
    ("fedosd", {"epochs": 2}, True),
    ("mode", {"recovery_lr": 0.5}, True),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    place = tmp_path_factory.mktemp("runs")
    for name, method in METHODS.items():
        fupareto.unlearn(blobs.federation(), blobs.trained(), FORGET, method, out=place / name)
    return {name: Run.open(place / name) for name in METHODS}


def again(run: Run, method: Method, rounds: list[int] | None = None, among: Federation | None = None) -> dict[int, str]:
    federation = (among or blobs.federation()).divided(FORGET)
    return {one.round: one.result for one in replay.replay(run, method, federation, rounds)}


@pytest.mark.parametrize("name", METHODS)
def test_every_round_is_the_same_bit_for_bit(runs: dict[str, Run], name: str) -> None:
    rounds = [record["round"] for record in runs[name].rounds()]
    assert again(runs[name], METHODS[name], rounds) == dict.fromkeys(rounds, replay.BITS)
    kept = again(runs[name], METHODS[name])
    assert set(kept.values()) == {replay.BITS}
    assert {1, len(rounds)} <= set(kept)


@pytest.mark.parametrize(("name", "change", "certain"), FORGED, ids=str)
def test_a_forged_option_is_found(
    runs: dict[str, Run], name: str, change: dict[str, Any], certain: bool, tmp_path: Path
) -> None:
    """The oracle is a run with the forged option: computing every round again shows it if and only if it acted."""
    forged = dataclasses.replace(METHODS[name], **change)
    fupareto.unlearn(blobs.federation(), blobs.trained(), FORGET, forged, out=tmp_path / "forged")
    states = [[record["state"] for record in run.rounds()] for run in (runs[name], Run.open(tmp_path / "forged"))]
    every = again(runs[name], forged, list(range(1, len(states[0]) + 1)))
    assert (set(every.values()) != {replay.BITS}) == (states[0] != states[1])
    found = replay.WRONG in again(runs[name], forged).values()
    assert found or not certain
    assert not found or states[0] != states[1]  # nobody is accused wrongly


def test_a_state_that_was_removed_is_missed(runs: dict[str, Run], tmp_path: Path) -> None:
    import shutil

    method = METHODS["renewing"]
    shutil.copytree(runs["renewing"].path, tmp_path / "run")
    last = max(record["round"] for record in runs["renewing"].rounds() if record["phase"] == "renew")
    for file in (tmp_path / "run/replay").glob(f"{last:05}*"):
        file.unlink()
    run = Run.open(tmp_path / "run")
    assert again(run, method)[last] == replay.BITS  # computed through the rounds before it
    assert again(run, dataclasses.replace(method, lr=0.5))[last] == replay.UNKNOWN  # type: ignore[call-arg]


def test_invented_numbers_in_a_record_and_other_models_are_found(runs: dict[str, Run], tmp_path: Path) -> None:
    import shutil

    shutil.copytree(runs["guard"].path, tmp_path / "run")
    lines = (tmp_path / "run/rounds.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["losses"]["0"] += 1.0
    (tmp_path / "run/rounds.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    assert again(Run(tmp_path / "run"), METHODS["guard"])[1] == replay.WRONG
    (tmp_path / "run/rounds.jsonl").write_text("\n".join(lines) + "\n")
    shutil.copy(tmp_path / "run/unlearned.safetensors", tmp_path / "run/recovered.safetensors")
    assert again(Run(tmp_path / "run"), METHODS["guard"])[len(lines)] == replay.WRONG


def test_gradients_of_forget_clients_are_not_kept_but_asked_for_again(runs: dict[str, Run]) -> None:
    method, run = METHODS["guard"], runs["guard"]
    recovering = [record["round"] for record in run.rounds() if record["phase"] == "recover"]
    kept = [number for number in recovering if run.has_replay(number)]
    assert kept
    for number in kept:
        before, after = run.load_replay(number, method.state)
        assert not before.guard.numel()  # type: ignore[attr-defined]
        assert not after.guard.numel()  # type: ignore[attr-defined]
    found = again(run, method, kept, Without(blobs.federation(), ["0"]))  # without the client there is no guard
    assert {found[number] for number in kept} <= {replay.WRONG, replay.BITS}


def test_a_round_from_which_a_client_was_missing_is_no_contradiction(tmp_path: Path) -> None:
    method = METHODS["fedosd"]
    absent = Without(blobs.federation(), ["2"])
    fupareto.unlearn(absent, blobs.trained(), FORGET, method, out=tmp_path / "run")
    found = again(Run.open(tmp_path / "run"), method)
    assert set(found.values()) == {replay.UNKNOWN}
    assert set(again(Run.open(tmp_path / "run"), method, among=absent).values()) == {replay.BITS}


def test_which_states_are_drawn_depends_on_the_state() -> None:
    numbers = [replay.drawn(f"{k:064x}", 7, 100) for k in range(2000)]
    assert 2000 / 25 * 0.6 < sum(numbers) < 2000 / 25 * 1.6
    assert all(replay.drawn(f"{k:064x}", 7, 4) for k in range(20))  # all of a short run


def test_the_digest_is_of_the_model_and_the_values() -> None:
    from fupareto.methods.base import State

    state = State(w=torch.zeros(3), forget=("a",), retained=("b",))
    assert replay.digest(state) == replay.digest(dataclasses.replace(state, record={"lr": 1.0}))
    assert replay.digest(state) != replay.digest(dataclasses.replace(state, started=1))
    assert replay.digest(state) != replay.digest(dataclasses.replace(state, w=torch.ones(3)))


def test_of_a_run_with_other_options_it_is_said_that_another_version_may_have_made_it(
    runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, federation = runs["renewing"], blobs.federation().divided(FORGET)
    assert {found.level for found in replayed(run, federation, "all")} == {OK}
    old = {key: value for key, value in run.config["method"].items() if not key.startswith("renewal_")}
    config = {**run.config, "method": {**old, "lr": 0.5}}
    monkeypatch.setattr(Run, "config", property(lambda self: config))
    wrong = [found for found in replayed(run, federation, "all") if found.level == FAILED]
    assert wrong
    assert all("(renewal_averaged, renewal_momentum, renewal_remains): another version" in f.text for f in wrong)
