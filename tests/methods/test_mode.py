"""MoDe: one round replayed with torch's SGD, the momentum, and which rounds degrade."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fupareto import parameters
from fupareto.federation.questions import Train
from fupareto.federation.request import Request
from fupareto.methods.mode import MoDe, MoDeState, degraded
from fupareto.tasks.losses import Loss

from .quadratics import vector
from .spies import Spy, by_torch, line, lines

SIZES = {"a": 7, "u": 10, "b": 16, "v": 5}
FORGET, STAY = ("u", "v"), ("a", "b")
W0 = torch.linspace(1.0, -1.0, 9)


def method(**options: Any) -> MoDe:
    return MoDe(**{"rounds": 4, "recovery_rounds": 0, "lr": 0.2, "batch_size": 4, "decay": 0.5, **options})


def started(**options: Any) -> tuple[MoDe, Spy, MoDeState]:
    spy = Spy(lines(**SIZES))
    mode = method(**options)
    return mode, spy, mode.init(spy, W0, Request(FORGET), seed=1)


def average(models: dict[str, Tensor]) -> Tensor:
    return sum((SIZES[i] * w for i, w in models.items()), torch.zeros(9)) / sum(SIZES[i] for i in models)


def replay(w: Tensor, v: Tensor, lr: float, momentum: float | None) -> tuple[Tensor, Tensor]:
    """One round in the words of the description; without a momentum, guidance alone."""
    data = {i: c["train"] for i, c in lines(**SIZES).clients.items()}
    if momentum is not None:
        v = average({i: by_torch(v, data[i][0], data[i][1], lr, 4) for i in STAY})
        w = momentum * w + (1 - momentum) * v
    young = line()
    parameters.write(young, v)
    given = {i: young(x).argmax(1) if i in FORGET else y for i, (x, y) in data.items()}
    return average({i: by_torch(w, data[i][0], given[i], lr, 4) for i in SIZES}), v


def test_rounds_are_degradation_then_guidance() -> None:
    mode, spy, state = started(momentum=0.8)
    w, v = W0, state.v
    for k in range(4):
        state = mode.step(spy, state)
        w, v = replay(w, v, 0.2 * 0.5**k, 0.8 if k < 2 else None)
        torch.testing.assert_close(state.w, w, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(state.v, v, atol=1e-5, rtol=1e-4)
    assert state.done


@pytest.mark.parametrize(
    ("rounds", "degrading", "wanted"), [(4, 0.5, 2), (5, 0.5, 3), (4, 0.0, 0), (4, 1.0, 4), (4, 0.25, 1)]
)
def test_a_share_of_the_rounds_degrades(rounds: int, degrading: float, wanted: int) -> None:
    mode, spy, state = started(rounds=rounds, degrading=degrading)
    phases, young = [], [state.v]
    while not state.done:
        state = mode.step(spy, state)
        phases.append(state.phase)
        young.append(state.v)
    assert phases == ["degrade"] * wanted + ["guide"] * (rounds - wanted)
    moved = [not torch.equal(a, b) for a, b in itertools.pairwise(young)]
    assert moved == [True] * wanted + [False] * (rounds - wanted)  # the young model grows no more


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=2), st.lists(st.floats(-5, 5), min_size=2, max_size=2))
def test_momentum(w: list[float], v: list[float]) -> None:
    found = degraded(vector(*w), vector(*v), 0.95)
    assert found.tolist() == pytest.approx([0.95 * a + 0.05 * b for a, b in zip(w, v, strict=True)], abs=1e-5)
    assert torch.equal(degraded(vector(*w), vector(*v), 1.0), vector(*w))
    assert torch.equal(degraded(vector(*w), vector(*v), 0.0), vector(*v))


def test_the_young_model_is_fresh_and_of_its_own() -> None:
    _, spy, state = started()
    assert not torch.equal(state.v, W0)
    assert torch.equal(state.w, W0)
    assert torch.equal(method().init(spy, -W0, Request(FORGET), seed=1).v, state.v)
    assert not torch.equal(method().init(spy, W0, Request(FORGET), seed=2).v, state.v)


def test_those_who_leave_never_train_the_young_model_and_never_see_their_labels() -> None:
    mode, spy, state = started()
    mode.step(spy, state)
    asked = [(i, q) for i, q in spy.asked if isinstance(q, Train)]
    assert [i for i, _ in asked[:2]] == ["a", "b"]
    assert all(torch.equal(q.w, state.v) and q.loss == Loss("ce") for _, q in asked[:2])
    guidance = dict(asked[2:])
    assert set(guidance) == set(SIZES)
    assert {i for i, q in guidance.items() if q.loss == Loss("imitate")} == set(FORGET)
    assert {i for i, q in guidance.items() if q.loss == Loss("ce")} == set(STAY)
    assert all((q.reference is not None) == (i in FORGET) for i, q in guidance.items())


@given(st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 2))
def test_imitation_is_cross_entropy_with_the_references_favourite(rows: list[list[float]], label: int) -> None:
    logits, labels = torch.linspace(-1, 1, 3 * len(rows)).view(-1, 3), torch.full((len(rows),), label)
    found = Loss("imitate")(logits, labels, torch.tensor(rows))
    for z, reference, value in zip(logits, torch.tensor(rows), found, strict=True):
        favourite = int(reference.argmax())
        assert float(value) == pytest.approx(float(torch.logsumexp(z, 0) - z[favourite]), abs=1e-5)


def test_a_young_model_that_nobody_trains_stays_and_guidance_goes_on() -> None:
    mode, spy, state = started()
    spy.absent = set(STAY)
    after = mode.step(spy, state)
    assert torch.equal(after.v, state.v)
    assert after.record["missing"] == dict.fromkeys(STAY, "absent")
    guided = [q.w for _, q in spy.asked if isinstance(q, Train) and q.loss.name == "imitate"]
    assert all(torch.equal(w, state.w) for w in guided)  # nothing pulls it towards a model that nobody trained
    assert guided


@pytest.mark.parametrize("name", ["momentum", "degrading"])
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_senseless_hyper_parameters_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        method(**{name: value})
