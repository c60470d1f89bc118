"""Tasks over a Flower grid: the server states them, nodes agree or refuse."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fupareto
from fupareto.flower import FlowerFederation, client_app
from fupareto.tasks import Classes

from .grid import LocalGrid


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def data(seed: int) -> Any:
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(seed))
    return (x[:30], x[:30, 0] * 2), (x[30:], x[30:, 0] * 2)


def grid(task: Any) -> LocalGrid:
    made = LocalGrid()
    for k, name in enumerate("abc"):
        made.start(client_app(model, lambda context, k=k: data(k), task=task), {"client-id": name})  # type: ignore[misc]
    return made


class Own(Classes):
    """A task that nodes have to name themselves."""


def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs()


OWN_LOSS = {"name": "numbers", "criterion": absolute}


@pytest.mark.parametrize(("task", "said"), [(None, "numbers"), ("numbers", "numbers"), (OWN_LOSS, OWN_LOSS)])
def test_the_servers_task_is_served_as_in_simulation(task: Any, said: Any) -> None:
    network = grid(task)
    over = FlowerFederation(network, model(), clients=3, task=said)
    here = fupareto.simulate(model(), {name: data(k) for k, name in enumerate("abc")}, task=said)
    summaries = []
    for federation in (over, here):
        trained = fupareto.train(federation, model(), fupareto.FedAvg(rounds=2, lr=0.05, optimizer="adam"))
        result = fupareto.unlearn(federation, trained, ["b"], fupareto.FUPareto(rounds=2, recovery_rounds=0, lr=0.1))
        result.audit()
        summaries.append(result.summary())
    assert summaries[0]["stages"] == summaries[1]["stages"]
    assert summaries[0]["task"] == summaries[1]["task"]
    assert summaries[0]["task"]["tolerance"] > 0
    assert "query.signals" in network.kinds()


@pytest.mark.parametrize(
    ("node", "server", "says"),
    [
        ("binary", "numbers", "and this node's is binary"),
        (None, Own, "pass it to client_app"),
        (None, {"name": "numbers", "criterion": "os:system"}, "os:system; pass it to client_app"),
        ("numbers", {"name": "numbers", "criterion": "os:system"}, "criterion is os:system, and this node's is None"),
    ],
)
def test_nodes_refuse_a_task_that_is_not_theirs(node: Any, server: Any, says: str) -> None:
    federation = FlowerFederation(grid(node), model(), clients=3, task=server)
    w = federation.fresh(0)
    missing = federation.evaluate(w, federation.ids, ("test",)).missing
    assert list(missing) == ["a", "b", "c"]
    assert says in missing["a"]
