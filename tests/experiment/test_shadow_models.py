"""Shadow models: what they train on, that pairs are complementary, and that a killed audit goes on."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from federation import worlds
from fupareto import config, experiment
from fupareto.errors import NotApplicable, UserError
from fupareto.experiment import Host, shadow_models
from fupareto.experiment.shadows import Shadows, make
from fupareto.federation import Request, SimulatedFederation
from fupareto.methods import FedAvg
from fupareto.run.directory import Run
from presets import guard

TINY = config.validate(
    {
        "name": "tiny",
        "data": {"samples": 300},
        "partition": {"kind": "iid", "clients": 4},
        "train": {"rounds": 3},
        "request": {"clients": ["1", "2"]},
        "unlearn": {"options": {"rounds": 2, "recovery_rounds": 1, "lr": 0.05}},
    },
    "tiny",
)


def engine() -> SimulatedFederation:
    clients = worlds.clients()
    marked = {**clients["c1"], "member": worlds.draw(worlds.FEATURES, 71, 24, False)}
    marked |= {
        "nonmember": worlds.draw(worlds.FEATURES, 72, 10, False),
        "spare": worlds.draw(worlds.FEATURES, 73, 10, True),
    }
    return SimulatedFederation(worlds.plain(), {**clients, "c1": marked})


def test_a_pool_is_what_was_trained_on_or_what_the_objective_sees() -> None:
    clients = engine().clients
    for client, form, first, second in (
        ("c1", "trained", "member", "nonmember"),
        ("c1", "objective", "train", "spare"),
        ("c4", "trained", "train", "test"),
        ("c4", "objective", "train", "test"),
    ):
        x, y = shadow_models.pool(clients[client], form)
        assert torch.equal(x, torch.cat([clients[client][first][0], clients[client][second][0]]))
        assert torch.equal(y, torch.cat([clients[client][first][1], clients[client][second][1]]))
    with pytest.raises(UserError, match="held-out samples"):
        shadow_models.pool({"train": clients["c1"]["train"]}, "trained")


def test_a_pair_has_every_sample_once_and_pairs_differ() -> None:
    masks = [shadow_models.halves(engine(), worlds.FORGET, 5, k) for k in range(4)]
    for client, size in (("c1", 34), ("c4", 46)):
        assert all(m[client].shape == (size,) for m in masks)
        assert np.array_equal(masks[0][client], ~masks[1][client])
        assert np.array_equal(masks[2][client], ~masks[3][client])
        assert not np.array_equal(masks[0][client], masks[2][client])
        assert masks[0][client].sum() == size // 2
    again = shadow_models.halves(engine(), worlds.FORGET, 5, 0)
    assert all(np.array_equal(again[i], masks[0][i]) for i in worlds.FORGET)
    assert not np.array_equal(shadow_models.halves(engine(), worlds.FORGET, 6, 0)["c1"], masks[0]["c1"])


def test_a_shadow_trains_on_its_half_and_the_others_are_as_they_were() -> None:
    federation = engine()
    masks = shadow_models.halves(federation, worlds.FORGET, 0, 0)
    for form in ("trained", "objective"):
        found = shadow_models.world(federation, worlds.FORGET, masks, form)
        assert found.ids == federation.ids
        for i in federation.ids:
            if i not in worlds.FORGET:
                assert torch.equal(found.clients[i]["train"][0], federation.clients[i]["train"][0])
                continue
            x, y = shadow_models.pool(federation.clients[i], form)
            assert torch.equal(found.clients[i]["train"][0], x[masks[i]])
            assert torch.equal(found.clients[i]["train"][1], y[masks[i]])
    without = shadow_models.world(federation, worlds.FORGET, None, "trained")
    assert without.ids == tuple(i for i in federation.ids if i not in worlds.FORGET)


def test_training_and_forgetting_a_shadow_is_training_and_forgetting_in_its_world() -> None:
    federation, request = engine(), Request(worlds.FORGET)
    masks = shadow_models.halves(federation, worlds.FORGET, 0, 3)
    w = shadow_models.train(federation, worlds.FORGET, masks, FedAvg(rounds=2, lr=0.1), 9)
    again = shadow_models.train(federation, worlds.FORGET, masks, FedAvg(rounds=2, lr=0.1), 9)
    other = shadow_models.train(federation, worlds.FORGET, None, FedAvg(rounds=2, lr=0.1), 9)
    assert torch.equal(w, again)
    assert not torch.equal(w, other)
    method = guard(rounds=2, recovery_rounds=1, lr=0.05)
    unlearned = shadow_models.forget(federation, request, masks, w, method, "unlearned", 9)
    recovered = shadow_models.forget(federation, request, masks, w, method, "recovered", 9)
    assert not torch.equal(unlearned, w)
    assert not torch.equal(unlearned, recovered)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("shadows")
    experiment.train(TINY, place / "trained")
    return experiment.unlearn(place / "trained", place / "run")


def test_shadows_are_made_once_and_shared(run: Run) -> None:
    said: list[str] = []
    shadowed = make(run, 2, host=Host(say=said.append))
    assert "4 to train in 3 rounds each" in said[0]
    own = Shadows(run, None)
    kept = {k: own.path("with", k).read_bytes() for k in range(4)}
    assert len(set(kept.values())) == 4
    assert own.path("with", 0).is_relative_to(run.path.parent / "trained")
    assert torch.equal(shadowed.load("with", 1), own.load("with", 1))
    own.path("with", 2).unlink()  # as if the audit had been killed
    make(run, 2, host=Host(say=said.append))
    assert "1 to train" in said[1]
    assert {k: own.path("with", k).read_bytes() for k in range(4)} == kept
    written = {k: own.path("with", k).stat().st_mtime_ns for k in range(4)}
    make(run, 2, host=Host(say=said.append))
    assert {k: own.path("with", k).stat().st_mtime_ns for k in range(4)} == written
    assert said[2] == "Shadow models: all 4 already exist."


def test_an_audit_of_every_tier(run: Run) -> None:
    experiment.audit(run, tier=2)
    second = json.loads((run.path / "audit.json").read_text())
    assert second["tier"] == 2
    experiment.audit(run, tier=3, shadows=8, retrain=True)
    third = json.loads((run.path / "audit.json").read_text())
    assert third["tier"] == 3
    final = run.summary["final"]
    for stage, attacks in (("initial", {"rmia", "lira"}), (final, {"rmia", "u-lira"}), ("retrained", {"rmia"})):
        for client in ("1", "2"):
            assert attacks <= set(third["membership"][stage]["clients"][client]["attacks"])
        assert attacks <= set(third["membership"][stage]["mean"])
    assert (third["told_apart"]["with"], third["told_apart"]["without"]) == (4, 4)
    assert set(third["told_apart"]["clients"]) == {"1", "2"}
    assert third["verdict"]["checks"][-1]["name"] == "unseen"
    for stage, told in second["membership"].items():  # tier 3 has what tier 2 had
        assert "rmia" in told["mean"]
        assert set(told["mean"]) <= set(third["membership"][stage]["mean"])


@pytest.mark.parametrize(("tier", "count"), [(2, 3), (2, 0), (3, 6), (3, 4), (3, -8)])
def test_numbers_of_shadows_that_make_no_pairs_are_refused(run: Run, tier: int, count: int) -> None:
    with pytest.raises(UserError, match="multiple of"):
        experiment.audit(run, tier=tier, shadows=count)


def test_what_shadows_cannot_imitate_is_refused(run: Run, tmp_path: Path) -> None:
    second = experiment.unlearn(run.path, tmp_path / "second", request=Request(("3",)))
    assert second.request["left"] == ["1", "2"]
    assert second.summary["forget"] == ["3"]
    with pytest.raises(NotApplicable, match="tier 1"):
        experiment.audit(second, tier=2)
    for kind, parts in (("left_samples", Request(samples={"1": (0, 3)})), ("left_classes", Request(classes=(2,)))):
        first = experiment.unlearn(run.path.parent / "trained", tmp_path / kind, request=parts, attack=False)
        second = experiment.unlearn(first.path, tmp_path / f"{kind}-2", request=Request(("3",)), attack=False)
        assert {"left", "left_samples", "left_classes"} & set(second.request) == {kind}
        with pytest.raises(NotApplicable, match="only the first request after a training"):
            make(second, 2)
    one_by_one = experiment.unlearn(run.path.parent / "trained", tmp_path / "one-by-one", sequential=True)
    with pytest.raises(NotApplicable, match="one by one"):
        experiment.audit(one_by_one, tier=3, shadows=8)


def test_a_damaged_shadow_is_named(run: Run) -> None:
    make(run, 2)
    path = Shadows(run, None).path("with", 0)
    kept = path.read_bytes()
    path.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(UserError, match=r"with-0000\.safetensors is damaged"):
        experiment.audit(run, tier=2)
    path.write_bytes(kept)
