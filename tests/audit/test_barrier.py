"""The loss barrier between two models: its height, and models for which the truth is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fupareto import parameters
from fupareto.audit.barrier import POINTS, barriers, height
from fupareto.federation import SimulatedFederation

LOSSES = st.lists(st.floats(-10, 10), min_size=2, max_size=9)


@given(LOSSES, st.floats(-5, 5), st.floats(-5, 5))
def test_a_straight_line_more_or_less_changes_nothing(losses: list[float], start: float, slope: float) -> None:
    tilted = [loss + start + slope * k for k, loss in enumerate(losses)]
    found, other = height(losses), height(tilted)
    assert found is not None
    assert found >= 0
    assert found == pytest.approx(other, abs=1e-9)


def test_a_loss_that_was_not_measured_leaves_the_height_open() -> None:
    assert height([0.1, None, 0.2]) is None


def clients() -> dict[str, dict[str, tuple[Tensor, Tensor]]]:
    drawn = torch.Generator().manual_seed(3)
    inputs = torch.randn(200, 6, generator=drawn)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
    return {"a": {"train": (inputs[:100], labels[:100])}, "b": {"train": (inputs[100:], labels[100:])}}


def trained(model: nn.Module) -> Tensor:
    sets = clients().values()
    inputs, labels = (torch.cat([part["train"][k] for part in sets]) for k in (0, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return parameters.read(model)


def test_hidden_units_in_another_order_are_the_same_function_behind_a_barrier() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    w = trained(model)
    order = torch.roll(torch.arange(16), 5)
    other = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    first, last, own, end = model[0], model[2], other[0], other[2]
    with torch.no_grad():
        own.weight.copy_(first.weight[order])  # type: ignore[operator, index]
        own.bias.copy_(first.bias[order])  # type: ignore[operator, index]
        end.weight.copy_(last.weight[:, order])  # type: ignore[operator, index]
        end.bias.copy_(last.bias)  # type: ignore[operator, arg-type]
    federation = SimulatedFederation(model, clients())
    found = barriers(federation, w, {"same": w, "permuted": parameters.read(other)}, ["a", "b"])
    assert found["same"]["height"] == pytest.approx(0, abs=1e-6)
    losses = found["permuted"]["losses"]
    assert len(losses) == POINTS
    assert losses[0] == pytest.approx(losses[-1], abs=1e-5)
    assert found["permuted"]["height"] > 0.05


def test_the_losses_of_a_linear_model_have_no_barrier() -> None:
    torch.manual_seed(1)
    model = nn.Linear(6, 2)
    federation = SimulatedFederation(model, clients())
    w, other = parameters.read(model), trained(nn.Linear(6, 2))
    found = barriers(federation, w, {"other": other}, ["a", "b"])
    assert found["other"]["height"] == pytest.approx(0, abs=1e-6)
