"""What a method computes does not depend on where the clients live."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fupareto import serial
from fupareto.federation import Federation, Local, Request, SimulatedFederation
from fupareto.federation.collected import Trial
from fupareto.methods import FedAvg, Method, State
from fupareto.tasks.losses import Loss
from presets import guard

from .engines import BytesFederation
from .worlds import CLASSES, FORGET, Factory, clients, dropping, normed, plain, shape_of, start, world

N_BYTES = 4 * len(start())


def run(method: Method, federation: Federation, w: Tensor, request: Request | None, rounds: int = 100) -> list[State]:
    """All states of a run, from the first on."""
    states = [method.init(federation, w, request, seed=11)]
    while not states[-1].done and len(states) <= rounds:
        states.append(method.step(federation, states[-1]))
    return states


def engines(model: Factory) -> list[Federation]:
    data = clients(shape_of(model))
    return [
        SimulatedFederation(model(), data, workers=1),
        SimulatedFederation(model(), data, workers=2),
        BytesFederation(model, data),
    ]


def assert_same_runs(method: Method, model: Factory, request: Request | None, w: Tensor) -> list[State]:
    runs = [run(method, federation, w, request) for federation in engines(model)]
    for other in runs[1:]:
        assert len(other) == len(runs[0])
        for mine, theirs in zip(runs[0], other, strict=True):
            assert mine.record == theirs.record
            assert serial.same(mine, theirs)
    return runs[0]


@pytest.mark.parametrize("model", [plain, dropping, normed])
def test_fedavg_is_bit_identical_on_every_engine(model: Factory) -> None:
    states = assert_same_runs(FedAvg(rounds=4, lr=0.1, epochs=2, batch_size=9), model, None, start(model))
    assert states[-1].round == 4
    assert not any(s.record["missing"] for s in states[1:])
    assert not torch.equal(states[-1].w, states[-2].w)


@pytest.mark.parametrize("model", [plain, dropping, normed])
@pytest.mark.parametrize(
    "options",
    [{}, {"gradient": "pseudo", "batch_size": 9, "search_mode": "train"}],
    ids=["default", "pseudo-gradient, search in train mode"],
)
def test_fupareto_is_bit_identical_on_every_engine(model: Factory, options: dict[str, Any]) -> None:
    w0 = run(FedAvg(rounds=5, lr=0.1), world(model), start(model), None)[-1].w
    method = guard(rounds=7, recovery_rounds=2, lr=1.0, s=2, **options)
    states = assert_same_runs(method, model, Request(FORGET), w0)[1:]
    assert {s.phase for s in states} == {"improve", "expand", "recover"}
    assert any(s.record["step"] is None for s in states)
    assert any(s.record["step"] is not None and len(s.record["tried"]) > 1 for s in states)
    assert not any(s.record["missing"] for s in states)


def counting() -> nn.Module:
    """Running statistics that depend on an integer buffer, which is not in the vector."""
    return nn.Sequential(plain(), nn.BatchNorm1d(CLASSES, momentum=None))


def test_batchnorm_that_counts_its_batches_is_bit_identical_too() -> None:
    assert_same_runs(FedAvg(rounds=3, lr=0.1, batch_size=8), counting, None, start(counting))


# Bytes ---------------------------------------------------------------------------------------------------------


def traffic_of(federation: Federation) -> tuple[int, int]:
    up, down = federation.traffic.up, federation.traffic.down
    federation.traffic.up = federation.traffic.down = 0
    return down, up


@pytest.mark.parametrize("federation", [world(), BytesFederation(plain, clients())], ids=["simulated", "bytes"])
def test_bytes_of_each_question(federation: Federation) -> None:
    ids, w = federation.ids[:4], start()
    federation.train(w, ids, Loss("ce"), Local(lr=0.1))
    assert traffic_of(federation) == (4 * N_BYTES, 4 * N_BYTES)
    federation.train_mean(w, ids, Loss("ce"), Local(lr=0.1))
    assert traffic_of(federation) == (4 * N_BYTES, 4 * N_BYTES)
    for pseudo in (None, Local(lr=0.1)):
        federation.gradients(w, dict.fromkeys(ids, Loss("ce")), pseudo=pseudo)
        assert traffic_of(federation) == (4 * N_BYTES, 4 * (N_BYTES + 4))
    list(federation.losses(Trial(w, w, (0.4, 0.2, 0.1)), dict.fromkeys(ids, Loss("ce")), {}))
    assert traffic_of(federation) == (4 * (N_BYTES + 3 * 4), 4 * 3 * 4)
    federation.evaluate(w, ids, ("train", "test"))
    assert traffic_of(federation) == (4 * N_BYTES, 4 * 2 * 3 * 4)


def test_a_search_that_stops_early_pays_for_the_steps_it_tried() -> None:
    w, steps, losses = start(), (0.4, 0.2, 0.1), {"c0": Loss("ce"), "c2": Loss("ce")}
    stepwise, at_once = world(), BytesFederation(plain, clients())
    for federation in (stepwise, at_once):
        next(iter(federation.losses(Trial(w, w, steps), losses, {})))
    assert traffic_of(stepwise) == (2 * (N_BYTES + 4), 2 * 4)
    assert traffic_of(at_once) == (2 * (N_BYTES + 3 * 4), 2 * 3 * 4)
    assert at_once.messages == 2


def test_bytes_of_a_fedavg_run() -> None:
    federation = world()
    run(FedAvg(rounds=3), federation, start(), None)
    assert traffic_of(federation) == (3 * 6 * N_BYTES, 3 * 6 * N_BYTES)


def test_bytes_of_a_fupareto_run_follow_from_its_record() -> None:
    federation = world()
    states = run(guard(rounds=7, recovery_rounds=2, lr=1.0), federation, start(), Request(FORGET))
    assert {s.phase for s in states[1:]} == {"improve", "expand", "recover"}
    down = up = 0
    known: tuple[int, int] | None = None
    for before, s in pairwise(states):
        asked = 4 if s.phase == "recover" else 6
        question = (id(before.w), asked)
        asked, known = (0 if question == known else asked), question  # after a failed round nothing is asked anew
        searching = {"improve": 6, "expand": 6, "recover": 4}[s.phase] if s.record["tried"] else 0
        down += asked * N_BYTES + searching * (N_BYTES + 4 * len(s.record["tried"]))
        up += asked * (N_BYTES + 4) + searching * 4 * len(s.record["tried"])
    guards = 2 * len(FORGET)  # two gradients of each forget client, once, before recovery
    assert traffic_of(federation) == (down + guards * N_BYTES, up + guards * (N_BYTES + 4))
