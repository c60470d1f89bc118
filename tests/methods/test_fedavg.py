import dataclasses
from typing import Any

import pytest
import torch

from fupareto.federation.questions import Train
from fupareto.federation.request import Request
from fupareto.methods import FedAvg
from fupareto.methods.local import OPTIMIZER

from .quadratics import Client, QuadraticFederation, linear, vector


def federation() -> QuadraticFederation:
    """Clients of 1, 3 and 4 samples whose local models after one step of rate 1 lie at minus their slope."""
    slopes = {"a": [[1.0, 0.0]], "b": [[0.0, 2.0]] * 3, "c": [[-4.0, 4.0]] * 4}
    return QuadraticFederation(2, **{i: Client([linear(s) for s in many], []) for i, many in slopes.items()})


def test_one_round_is_the_mean_weighted_by_samples() -> None:
    method, clients = FedAvg(rounds=2, lr=1.0, batch_size=200), federation()
    state = method.init(clients, vector(0.0, 0.0), None)
    assert (state.forget, state.retained, state.stage) == ((), ("a", "b", "c"), "initial")
    state = method.step(clients, state)
    # (1·(-1, 0) + 3·(0, -2) + 4·(4, -4)) / 8
    assert state.w.tolist() == [15 / 8, -22 / 8]
    assert (state.round, state.phase, state.done) == (1, "train", False)
    assert state.record == {"lr": 1.0, "step": 1.0, "missing": {}}


def test_local_epochs_run_over_batches() -> None:
    clients = federation()
    state = FedAvg(lr=0.5, epochs=3, batch_size=2).init(clients, vector(0.0, 0.0), None)
    state = FedAvg(lr=0.5, epochs=3, batch_size=2).step(clients, state)
    # 3 epochs of 1, 2 and 2 batches of rate .5
    assert state.w.tolist() == pytest.approx([(1 * -1.5 + 4 * 12.0) / 8, (3 * -6.0 + 4 * -12.0) / 8])


def test_the_rate_decays_every_round_and_the_last_one_is_done() -> None:
    method, clients = FedAvg(rounds=3, lr=0.2, decay=0.5), federation()
    state = method.init(clients, vector(0.0, 0.0), None)
    rates = []
    while not state.done:
        state = method.step(clients, state)
        rates.append(state.record["lr"])
    assert rates == [0.2, 0.1, 0.05]
    assert [q.lr for _, q in clients.asked if isinstance(q, Train)] == [r for r in rates for _ in range(3)]
    assert method.budget == 3


def test_a_missing_client_is_named_and_the_others_weigh_alone() -> None:
    method, clients = FedAvg(lr=1.0), federation()
    clients.absent = {"c"}
    state = method.step(clients, method.init(clients, vector(0.0, 0.0), None))
    assert state.w.tolist() == [-1 / 4, -6 / 4]
    assert state.record["missing"] == {"c": "absent"}
    clients.absent = {"a", "b", "c"}
    alone = method.step(clients, state)
    assert torch.equal(alone.w, state.w)
    assert alone.record["step"] is None


def test_whoever_is_to_be_forgotten_does_not_train() -> None:
    method, clients = FedAvg(lr=1.0), federation()
    state = method.init(clients, vector(0.0, 0.0), Request(("b",)))
    state = method.step(clients, state)
    assert {i for i, _ in clients.asked} == {"a", "c"}
    assert (state.forget, state.retained) == (("b",), ("a", "c"))
    assert state.w.tolist() == pytest.approx([15 / 5, -16 / 5])


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(FedAvg) if f.name not in OPTIMIZER])
@pytest.mark.parametrize("value", [0, -1])
def test_senseless_hyper_parameters_are_refused(name: str, value: int) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        FedAvg(**options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer", "adan"),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("weight_decay", -1.0),
        ("clip", 0.0),
        ("shuffle", 1),
    ],
)
def test_senseless_optimizers_are_refused(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        FedAvg(**options)
