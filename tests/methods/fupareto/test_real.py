"""FUPareto on networks and data, not formulas."""

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import Tensor

from fupareto import experiment
from fupareto.config import Experiment
from fupareto.federation import SimulatedFederation
from fupareto.methods import FedAvg
from fupareto.methods.registry import find
from fupareto.tasks.losses import Loss
from presets import guard

from .. import blobs
from ..quadratics import cosine, story, walk

Run = tuple[SimulatedFederation, list[Any]]


@pytest.fixture(scope="module")
def digits() -> Run:
    """The demo, shortened; the rate is high enough for the search to fail at once."""
    demo = Experiment()
    clients, w = experiment.federation(demo, workers=1)
    training = FedAvg(**{**demo.train.model_dump(exclude={"method", "record", "keep"}), "rounds": 60})
    state = training.init(clients, w, None, demo.seed)
    while not state.done:
        state = training.step(clients, state)
    request = experiment.default_request(demo)
    clients, _ = experiment.federation(demo, request, workers=1)
    return clients, walk(guard(rounds=5, recovery_rounds=3, lr=0.5), clients, state.w, request.clients)


def pairs(states: list[Any], letters: str) -> list[tuple[Any, Any]]:
    return [(states[k], states[k + 1]) for k, letter in enumerate(story(states)) if letter in letters]


def gradients(clients: SimulatedFederation, w: Tensor, ids: tuple[str, ...], loss: Loss) -> list[Tensor]:
    answer = clients.gradients(w, dict.fromkeys(ids, loss))
    assert answer.ids == ids
    return list(answer.gradients)


def test_digits_improvement_fails_expansion_acts_improvement_resumes(digits: Run) -> None:
    _, states = digits
    assert "iEI" in story(states)
    for before, after in pairs(states, "ier"):
        assert torch.equal(before.w, after.w)


def test_digits_expansion_is_orthogonal_to_every_retained_gradient(digits: Run) -> None:
    clients, states = digits
    found = pairs(states, "E")
    assert found
    for before, after in found:
        for gradient in gradients(clients, before.w, before.retained, Loss("ce")):
            assert abs(cosine(after.w - before.w, gradient)) <= 1e-5
        assert all(abs(after.record["cosines"][r]) <= 1e-5 for r in before.retained)
        assert all(after.record["cosines"][u] > 0 for u in before.forget)


def test_digits_improvement_lowers_every_loss(digits: Run) -> None:
    clients, states = digits
    found = pairs(states, "I")
    assert found
    for before, after in found:
        losses = {u: Loss("mbs", delta=1e-3, form="separating") for u in before.forget}
        losses |= dict.fromkeys(before.retained, Loss("ce"))
        old, new = clients.gradients(before.w, losses), clients.gradients(after.w, losses)
        for k in range(len(losses)):
            slope = float(old.gradients[k].double() @ (before.w - after.w).double())
            assert new.losses[k] <= old.losses[k] - 1e-4 * slope + (1e-6 if slope == 0 else 1e-7)


def test_digits_recovery_is_orthogonal_to_the_guards(digits: Run) -> None:
    clients, states = digits
    found = pairs(states, "R")
    assert found
    switch = next(s for s in states if s.stage == "recovered")
    guards = [
        g
        for loss in (Loss("ce"), Loss("mbs", delta=1.0))
        for g in gradients(clients, switch.w, switch.forget, loss)
        if float(g.norm()) > 0
    ]
    for before, after in found:
        assert all(abs(cosine(after.w - before.w, g)) <= 1e-5 for g in guards)


METHODS = ["fupareto:guard", "fupareto:paper"]


def blob_states(name: str, seed: int = 0, **options: Any) -> list[Any]:
    method = find(name, {"rounds": 6, "recovery_rounds": 3, "lr": 0.1, **options})
    return walk(method, blobs.federation(), blobs.trained(), blobs.FORGET, seed)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_ends_and_its_records_are_finite_json(name: str) -> None:
    states = blob_states(name)
    assert states[-1].done
    assert states[-1].stage == "recovered"
    assert not torch.equal(states[-1].w, states[0].w)
    for state in states[1:]:
        assert bool(torch.isfinite(state.w).all())
        line = json.loads(json.dumps(state.record, allow_nan=False))
        assert line == state.record
        assert {"lr", "step", "tried", "losses", "cosines", "missing"} <= set(line)


def test_the_printed_anchor_pulls_the_model_back_in_every_round() -> None:
    states = blob_states("fupareto:paper", batch_size=4, lr=0.02)
    for before, after in pairs(states, "R"):
        assert cosine(after.w - before.w, before.w - before.w0) < 0
    assert len(pairs(states, "R")) == 3


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_everything(name: str) -> None:
    one, two = blob_states(name, seed=3), blob_states(name, seed=3)
    for a, b in zip(one, two, strict=True):
        assert a.record == b.record
        for field in dataclasses.fields(a):
            x, y = getattr(a, field.name), getattr(b, field.name)
            assert torch.equal(x, y) if isinstance(x, Tensor) else x == y


def test_the_seed_feeds_dropout_and_nothing_else() -> None:
    for name in METHODS:
        one, two = (blob_states(name, seed, rounds=2, recovery_rounds=1)[-1] for seed in (1, 2))
        assert torch.equal(one.w, two.w) == (name == "fupareto:guard")
