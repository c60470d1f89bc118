"""Clients that lie to FUPareto: bounded, named or overruled, and honest clients never accused."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch import nn

from federation.engines import Fault, FaultyFederation, Reply
from fupareto import api
from fupareto.federation import Federation, Request, SimulatedFederation
from fupareto.federation.questions import Gradient, LossAndGradient, Losses, Question, TrialLosses
from fupareto.methods import FedAvg, FUPareto
from fupareto.methods.fupareto.conduct import SHRINKING, contradiction
from fupareto.methods.fupareto.method import FUParetoState
from fupareto.tasks.losses import Loss
from presets import guard

from ..quadratics import QuadraticFederation, linear

FORGET, RETAINED, OTHER = "5", "3", "4"  # OTHER is forgotten too where two clients are
METHOD = guard(rounds=36, recovery_rounds=4, lr=0.3)
CE = Loss("ce")


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@cache
def world() -> SimulatedFederation:
    """Six clients with handwritten digits; one alone has underlined digits, with shifted labels."""
    digits, held = load_digits(), {}
    for k in range(6):
        x, y = torch.tensor(digits.data[k::12] / 16).float(), torch.tensor(digits.target[k::12])
        if str(k) == FORGET:
            x[:, -8:], y = 1.0, (y + 1) % 10
        held[str(k)] = {"train": (x[:110], y[:110]), "test": (x[110:], y[110:])}
    return SimulatedFederation(model(), held, workers=1)


@pytest.fixture(scope="module")
def w0() -> torch.Tensor:
    found = api.train(world(), model(), FedAvg(rounds=40, lr=0.3, batch_size=10), measure_every=0)
    return world().layout.flat(found.model("initial"))


def unlearn(
    federation: Federation, w: torch.Tensor, method: FUPareto = METHOD, forget: tuple[str, ...] = (FORGET,)
) -> list[FUParetoState]:
    states = [method.init(federation, w, Request(forget))]
    while not states[-1].done:
        states.append(method.step(federation.at(states[-1].round), states[-1]))
    return states


def known(w: torch.Tensor, client: str = FORGET) -> float:
    return float(world().evaluate(w, (client,), ("train",)).accuracy(client, "train") or 0.0)


def useful(w: torch.Tensor, without: tuple[str, ...] = (RETAINED, FORGET)) -> float:
    ids = tuple(i for i in world().ids if i not in without)
    found = world().evaluate(w, ids, ("test",))
    return float(np.mean([found.accuracy(i, "test") or 0.0 for i in ids]))


def steps_of(states: list[FUParetoState]) -> int:
    return sum(s.record["step"] is not None for s in states[1:] if s.phase in ("improve", "expand"))


def vetoing(value: float) -> Fault:
    def fault(question: Question, reply: Reply) -> Reply:
        return Losses((value,) * len(reply.losses)) if isinstance(reply, Losses) else reply

    return fault


def scaled(factor: float) -> Fault:
    def fault(question: Question, reply: Reply) -> Reply:
        if not isinstance(reply, LossAndGradient):
            return reply
        return LossAndGradient(reply.loss, factor * reply.gradient, reply.steps)

    return fault


def claiming(loss: float) -> Fault:
    def fault(question: Question, reply: Reply) -> Reply:
        return replace(reply, loss=loss) if isinstance(reply, LossAndGradient) else reply

    return fault


def shielding(question: Question, reply: Reply) -> Reply:
    """Minus the gradient of the forget client, with its own losses."""
    if not isinstance(question, Gradient) or not isinstance(reply, LossAndGradient):
        return reply
    found = world().gradients(question.w, {FORGET: Loss("mbs")})
    return LossAndGradient(reply.loss, -found.gradients[0], 1)


ATTACKS: dict[str, Fault] = {
    "always a veto": vetoing(1e9),
    "a veto by infinity": vetoing(float("inf")),
    "a veto by a little": vetoing(5.0),
    "a gradient times 1e6": scaled(1e6),
    "a loss of -1e6": claiming(-1e6),
    "a loss of 1e9": claiming(1e9),
    "minus the forget gradient": shielding,
}


@pytest.mark.parametrize("fault", ATTACKS.values(), ids=ATTACKS)
def test_one_retained_client_does_not_stop_unlearning(fault: Fault, w0: torch.Tensor) -> None:
    assert known(w0) > 0.5
    states = unlearn(FaultyFederation(world(), {RETAINED: fault}), w0)
    assert steps_of(states) >= 5
    assert known(states[-1].w) < 0.3
    assert useful(states[-1].w) > 0.8
    named = {i for s in states[1:] for key in ("missing", "bounded", "trial") for i in s.record.get(key, ())}
    assert named == {RETAINED}


def test_one_retained_client_does_not_stop_improvement_after_renewal(w0: torch.Tensor) -> None:
    """Improvement ends with the first wide search that fails, so the trial comes before its end."""
    method = FUPareto(training=FedAvg(rounds=40, lr=0.3, batch_size=10))
    honest = unlearn(world(), w0, method)
    states = unlearn(FaultyFederation(world(), {RETAINED: vetoing(1e9)}), w0, method)
    assert steps_of(honest) >= 5
    assert steps_of(states) >= 5
    assert set(states[-1].distrusted) == {RETAINED}
    assert not honest[-1].distrusted


def test_a_forget_client_that_turns_its_gradient_is_named_and_harms_nobody(w0: torch.Tensor) -> None:
    honest = unlearn(world(), w0, forget=(FORGET, OTHER))
    states = unlearn(FaultyFederation(world(), {OTHER: scaled(-1000.0)}), w0, forget=(FORGET, OTHER))
    assert "as fast as its gradient says" in states[-1].distrusted[OTHER]
    assert known(states[-1].w) < 0.3
    assert useful(states[-1].w, (FORGET, OTHER)) >= useful(honest[-1].w, (FORGET, OTHER)) - 0.1
    assert all(OTHER in s.record["missing"] for s in states[-5:] if s.phase == "improve")
    assert not any(s.record["forgotten"] for s in states[1:])


def test_a_trial_judges_a_gradient_as_it_was_sent() -> None:
    """A gradient shortened to that of the others promises so little that no loss contradicts it clearly."""
    steep, flat = linear([7.0, 0.0, 0.0], 9.0), linear([0.0, 0.3, 0.0], 1.0)
    retained = {f"r{k}": linear([0.0, 0.0, 0.4], 1.0) for k in range(4)}
    clients = QuadraticFederation(3, liar=steep, other=flat, **retained)
    lying = FaultyFederation(clients, {"liar": scaled(-1000.0)})
    method = guard(rounds=6, recovery_rounds=0, lr=0.05, forgotten_loss=0.0)
    states = unlearn(lying, torch.zeros(3), method, ("liar", "other"))
    assert set(states[-1].distrusted) == {"liar"}
    assert steps_of(states) >= 2


def test_honest_clients_are_never_accused_and_the_models_are_the_same(w0: torch.Tensor) -> None:
    for options in (
        {},
        {"participation": 0.5},
        {"lr": 5.0},
        {"gradient": "pseudo"},
        {"loss": "uce"},
        {"recovery": "none"},
    ):
        method = replace(METHOD, rounds=15, **options)
        states = unlearn(world(), w0, method, (FORGET, OTHER))
        for state in states[1:]:
            assert not state.distrusted
            assert not state.record["missing"]
            assert "bounded" not in state.record
            assert not state.record.get("trial")
    assert any("trial" in s.record for s in states[1:])  # some were held


def test_vetoes_are_recorded(w0: torch.Tensor) -> None:
    states = unlearn(FaultyFederation(world(), {RETAINED: vetoing(1e9)}), w0)
    first = states[1].record
    assert first["step"] is None
    assert sorted(step for steps in first["vetoes"].values() for step in steps) == sorted(first["tried"])
    assert first["tried"][-1] in first["vetoes"][RETAINED]


def test_a_quorum_overrules_a_consistent_liar(w0: torch.Tensor) -> None:
    """Its losses follow its slope for small steps, so no trial can tell."""

    def convex(question: Question, reply: Reply) -> Reply:
        if not isinstance(question, TrialLosses) or not isinstance(reply, Losses):
            return reply
        found = world().gradients(question.w, {RETAINED: CE})
        slope = float(found.gradients[0] @ question.direction)
        steps = np.array(question.steps)
        return Losses(tuple((found.losses[0] - steps * slope + 1e6 * steps**2).tolist()))

    blocked = unlearn(FaultyFederation(world(), {RETAINED: convex}), w0)
    assert not blocked[-1].distrusted
    assert not any(s.record["step"] for s in blocked[1:] if s.phase == "improve")
    overruled = unlearn(FaultyFederation(world(), {RETAINED: convex}), w0, replace(METHOD, quorum=0.8))
    assert any(s.record["step"] for s in overruled[1:] if s.phase == "improve")
    assert known(overruled[-1].w) < 0.3


@pytest.mark.parametrize("value", [0.0, 1.5, -1.0])
def test_a_quorum_is_a_share(value: float) -> None:
    with pytest.raises(ValueError, match="quorum"):
        FUPareto(quorum=value)


# The rule itself ---------------------------------------------------------------------------------------------------

losses = st.floats(0.0, 20.0)
rates = st.floats(-10.0, 10.0)


@settings(deadline=None, max_examples=300)
@given(losses, rates, st.floats(-1e3, 1e3), st.floats(1e-4, 1.0), st.integers(0, 2**32 - 1))
def test_a_smooth_loss_never_contradicts_its_slope(
    loss: float, slope: float, curvature: float, smallest: float, seed: int
) -> None:
    steps = smallest * SHRINKING
    rounding = 1e-6 * max(loss, 1.0) * np.random.default_rng(seed).uniform(-1, 1, len(steps))
    after = loss - steps * slope + 0.5 * curvature * steps**2 + rounding
    assert contradiction(loss, slope, steps, after) is None


LIES: dict[str, Callable[[float, float, Any], Any]] = {
    "a constant": lambda loss, slope, steps: np.full(len(steps), loss + 1.0),
    "infinity": lambda loss, slope, steps: np.full(len(steps), np.inf),
    "the other way": lambda loss, slope, steps: loss + steps * slope,
    "a hundredth": lambda loss, slope, steps: loss - 0.01 * steps * slope,
    "a hundred times": lambda loss, slope, steps: loss - 100 * steps * slope,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@settings(deadline=None, max_examples=50)
@given(loss=st.floats(0.0, 10.0), slope=st.floats(5.0, 50.0), smallest=st.floats(0.2, 1.0))
def test_a_lie_contradicts_the_slope(lie: Any, loss: float, slope: float, smallest: float) -> None:
    steps = smallest * SHRINKING
    assert contradiction(loss, slope, steps, lie(loss, slope, steps), -np.inf)


@settings(deadline=None, max_examples=300)
@given(st.floats(0.0, 0.01), st.floats(0.01, 50.0), st.floats(-50.0, 50.0), st.floats(1e-4, 1.0))
def test_a_client_that_has_nearly_forgotten_stays_trusted(
    margin: float, speed: float, other: float, smallest: float
) -> None:
    """A hundredth of its samples are on the wrong side of the boundary; steps take them over it, or others back."""
    steps = smallest * SHRINKING
    mine, theirs = np.maximum(margin - speed * steps, 0.0), np.maximum(-margin - other * steps, 0.0)
    assert contradiction(0.01 * margin, 0.01 * speed, steps, 0.01 * (mine + theirs)) is None
    back = np.maximum(margin + speed * steps, 0.0) + 9 * np.maximum(speed * steps - margin, 0.0)
    assert contradiction(0.01 * margin, -0.01 * speed, steps, 0.01 * back) is None


def test_a_forgotten_client_that_is_honest_stays_trusted() -> None:
    """Its loss is nearly zero, and cannot fall as far as its gradient says."""
    loss, slope, steps = 6.7e-5, 0.35, 0.1 * SHRINKING
    after = np.maximum(loss - slope * steps, 0.0)
    assert contradiction(loss, slope, steps, after) is None
    assert contradiction(1.0, slope, steps, 1.0 + slope * steps)  # a lie


def test_a_stage_ends_when_every_forget_client_is_distrusted(w0: torch.Tensor) -> None:
    states = unlearn(FaultyFederation(world(), {FORGET: scaled(-1000.0)}), w0, replace(METHOD, recovery_rounds=0))
    assert set(states[-1].distrusted) == {FORGET}
    since = next(k for k, s in enumerate(states) if s.distrusted)
    assert len(states) - 1 <= since + 1
