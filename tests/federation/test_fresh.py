"""Newly initialised models: those of the user's function must match the federation's model."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from flower.grid import grid_of
from fupareto import parameters
from fupareto.errors import UserError
from fupareto.federation import Federation, SimulatedFederation
from fupareto.federation.fresh import fresh_model
from fupareto.flower.engine import FlowerFederation
from fupareto.parameters import Layout

from .worlds import clients


def net(seed: int = 0, frozen: bool = True, width: int = 5, name: str = "head") -> nn.Module:
    """Return a model with a frozen first layer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Sequential()
        module.add_module("first", nn.Linear(8, width).requires_grad_(not frozen))
        module.add_module(name, nn.Linear(width, 3))
    return module


def normed(seed: int) -> nn.Module:
    return nn.Sequential(*net(seed).children(), nn.BatchNorm1d(3))


def buffered(seed: int) -> nn.Module:
    """Return a model whose last bias is a buffer, with the name and place that the parameter has."""
    module = net(seed)
    bias = module.get_parameter("head.bias").detach()
    del module.get_submodule("head").bias
    module.get_submodule("head").register_buffer("bias", bias)
    return module


def simulated(fresh: Callable[[int], nn.Module]) -> Federation:
    return SimulatedFederation(net(), clients(), workers=1, fresh=fresh)


def flower(fresh: Callable[[int], nn.Module]) -> Federation:
    return FlowerFederation(grid_of(net, clients()), net(), clients=6, fresh=fresh)


@pytest.mark.parametrize("engine", [simulated, flower])
def test_the_model_of_the_users_function_is_taken(engine: Callable[..., Federation]) -> None:
    assert torch.equal(engine(net).fresh(7), parameters.read(net(7)))


@pytest.mark.parametrize("engine", [simulated, flower])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda seed: net(seed, frozen=False), "'first.weight' of shape (5, 8) where that has 'head.weight'"),
        (lambda seed: net(seed, width=6), "'head.weight' of shape (3, 6) where that has 'head.weight' of shape (3, 5)"),
        (lambda seed: net(seed, name="last"), "'last.weight' of shape (3, 5) where that has 'head.weight'"),
        (normed, "it has '1.weight' of shape (3, 5) where that has 'head.weight'"),
        (buffered, "it has 15 trainable numbers, that has 18"),
    ],
    ids=["not frozen", "another width", "another name", "more", "a buffer"],
)
def test_a_model_that_does_not_match_is_refused(
    engine: Callable[..., Federation], make: Callable[[int], nn.Module], words: str
) -> None:
    with pytest.raises(UserError, match=f"{re.escape(words)}.*freeze the same parameters"):
        engine(make).fresh(0)


def test_what_is_not_a_model_is_refused() -> None:
    with pytest.raises(UserError, match=r"fresh must return an nn\.Module, not a dict"):
        fresh_model(net(), Layout.of(net()), lambda seed: {}, 0)  # type: ignore[arg-type, return-value]
