"""No option is dead: each one, changed alone, changes what happens."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, get_origin, get_type_hints

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods import FedAvg, FUPareto
from fupareto.methods.fupareto.options import OF_RENEWAL, WITHOUT_RENEWAL
from fupareto.methods.registry import find
from fupareto.methods.renew import Renew
from fupareto.tasks.losses import Loss
from presets import guard

from .. import blobs
from ..quadratics import QuadraticFederation, conflict, linear, quadratic, story, vector, walk

Problem = tuple[Federation, Tensor, tuple[str, ...]]


def network() -> Problem:
    return blobs.federation(), blobs.trained(), blobs.FORGET


def front() -> Problem:
    """Near the Pareto front: improvement fails in the sixth round, and expansion acts."""
    return conflict(), torch.zeros(6), ("u1", "u2")


def overshoot() -> Problem:
    """No expansion step in the range is short enough for u1."""
    u1, u2 = quadratic([0.0] * 3, [100.0, 0.0, 0.0]), linear([0.0, 0.3, 0.0], 9.0)
    r = quadratic([0.0, 0.0, 1.0], [0.0, 0.0, 0.5])
    return QuadraticFederation(3, u1=u1, u2=u2, r=r), vector(1e-4, 0.0, 0.0), ("u1", "u2")


BASE: dict[str, Any] = {"rounds": 5, "recovery_rounds": 2, "lr": 0.1}
SHORT = FedAvg(rounds=4, lr=0.5, batch_size=4)
LONG: dict[str, Any] = {"rounds": 8}
UNGUIDED: dict[str, Any] = {"guidance": "off", "expansion_guidance": "off", "forgotten_loss": 0.0}

# option, another value, the problem that shows it, and what else must be set for it to matter
CASES: list[tuple[str, Any, Callable[[], Problem], dict[str, Any]]] = [
    ("renewal", 0.5, network, {"training": SHORT}),
    ("renewal_remains", 0.9, network, {"renewal": 0.5, "training": SHORT}),
    ("renewal_momentum", 0.0, network, {"renewal": 1.0, "training": SHORT}),
    ("renewal_averaged", 1.0, network, {"renewal": 1.0, "training": SHORT}),
    ("training", dataclasses.replace(SHORT, lr=0.1), network, {"renewal": 0.5, "training": SHORT}),
    ("rates", "follow", network, {}),
    ("rounds", 3, network, {}),
    ("recovery_rounds", 0, network, {}),
    ("lr", 0.2, network, {}),
    ("recovery_lr", 0.01, network, {}),
    ("decay", 0.9, network, {}),
    ("s", 1, network, {}),
    ("loss", "uce", network, {}),
    ("loss", "kl", network, {}),
    ("loss", "reverse-kl", network, {"loss": "kl"}),
    ("delta", 0.5, network, {}),
    ("mbs_form", "printed", network, {"delta": 0.5}),
    ("gradient", "pseudo", network, {}),
    ("batch_size", 5, network, {"gradient": "pseudo"}),
    ("participation", 0.5, network, {}),
    ("quorum", 0.5, network, {}),
    ("beta", 0.9, network, {}),
    ("armijo", "printed", network, {"beta": 0.9}),
    ("search_mode", "train", network, {}),
    ("guidance", "uniform", network, {}),
    ("guidance", "off", network, {}),
    ("guidance_scale", "exact", network, {}),
    ("equal_norms", False, network, {}),
    ("rescale", False, network, {}),
    ("expansion_guidance", "all", front, LONG),
    ("expansion_guidance", "off", front, LONG),
    ("expansion_projection", False, front, LONG),
    ("expansion_large_steps", True, front, LONG),
    ("expansion_fallback", "skip", overshoot, UNGUIDED),
    ("expansion_harm", 0.0, front, LONG),
    *(("recovery", r, network, {}) for r in ("away", "printed", "project", "none")),
    ("recovery_search", False, network, {}),
    ("forgotten_loss", 0.0, overshoot, {"guidance": "off"}),
]


@cache
def run(problem: Callable[[], Problem], method: FUPareto) -> tuple[str, list[list[float]]]:
    federation, w0, forget = problem()
    states = walk(method, federation, w0, forget)
    return story(states), [s.w.tolist() for s in states]


def trajectory(problem: Callable[[], Problem], options: dict[str, Any]) -> tuple[str, list[list[float]]]:
    return run(problem, guard(**options))


@pytest.mark.parametrize(("option", "other", "problem", "needed"), CASES, ids=[f"{c[0]}={c[1]}" for c in CASES])
def test_an_option_changes_the_run(
    option: str, other: Any, problem: Callable[[], Problem], needed: dict[str, Any]
) -> None:
    base = {**BASE, **needed}
    assert other != {**dataclasses.asdict(guard()), **base}[option], "the case must change something"
    assert trajectory(problem, {**base, option: other}) != trajectory(problem, base)


def test_every_option_has_a_case() -> None:
    assert {case[0] for case in CASES} == {f.name for f in dataclasses.fields(FUPareto)}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        *(
            ({name: value}, name)
            for name in ("rounds", "lr", "recovery_lr", "decay", "batch_size")
            for value in (0, -1)
        ),
        ({"lr": float("nan")}, "lr"),
        ({"s": -1}, "s must lie"),
        ({"recovery_rounds": -1}, "recovery_rounds"),
        ({"expansion_harm": -0.1}, "expansion_harm"),
        ({"forgotten_loss": -1e-9}, "forgotten_loss"),
        *(({"participation": value}, "participation") for value in (0.0, -0.5, 1.01, float("nan"))),
        *(({"renewal": value}, "renewal") for value in (-0.1, 1.1, float("nan"), "x")),
        ({"training": {"rounds": 3}}, "training must be"),
        *(({"beta": value}, "beta") for value in (0.0, 1.0, -0.1, 2.0)),
    ],
)
def test_senseless_hyper_parameters_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        FUPareto(**options)


@pytest.mark.parametrize("option", [n for n, hint in get_type_hints(FUPareto).items() if get_origin(hint) is Literal])
def test_misspelt_choices_are_refused(option: str) -> None:
    options: dict[str, Any] = {option: "gaurd"}
    with pytest.raises(ValueError, match=option):
        FUPareto(**options)


def test_unlearning_needs_a_request() -> None:
    with pytest.raises(ValueError, match="request"):
        guard().init(conflict(), torch.zeros(6), None)


def test_the_budget_is_all_phases() -> None:
    assert guard(rounds=7, recovery_rounds=5).budget == 12
    assert FUPareto(rounds=7, recovery_rounds=5, renewal=0.3, training=FedAvg(rounds=11)).budget == 4 + 2 + 12


def test_a_state_starts_where_it_should() -> None:
    state = guard(lr=0.3).init(conflict(), torch.zeros(6), Request(("u2", "u1")), seed=5)
    assert (state.forget, state.retained) == (("u1", "u2"), ("r1", "r2", "r3"))
    assert (state.rate, state.round, state.stage, state.done, state.seed) == (0.3, 0, "unlearned", False, 5)


def test_the_paper_preset_follows_the_printed_formulas() -> None:
    """One improvement, worked out again: raw gradients, the guidance by finite differences, min-norm by scipy."""
    clients, w0, forget = conflict(), torch.zeros(6), ("u1", "u2")
    method = find("fupareto:paper", {"rounds": 1, "recovery_rounds": 0, "lr": 0.1})
    state = method.step(clients, method.init(clients, w0, Request(forget)))
    mbs = Loss("mbs", delta=1e-3, form="printed")
    losses = {i: mbs if i in forget else Loss("ce") for i in clients.ids}
    preference = np.array([float(i not in forget) for i in clients.ids])

    def angle(w: np.ndarray[Any, Any]) -> float:
        f = np.array([clients.loss(i, torch.from_numpy(w).float(), losses[i]) for i in clients.ids])
        return float(np.arccos(preference @ f / np.linalg.norm(preference) / np.linalg.norm(f)))

    eye = 1e-3 * np.eye(6)
    guidance = np.array([(angle(e) - angle(-e)) / 2e-3 for e in eye])
    rows = np.vstack([*(clients.gradient(i, w0, losses[i]).double().numpy() for i in clients.ids), guidance])
    found = scipy.optimize.minimize(
        lambda x: float(np.sum((x @ rows) ** 2)),
        np.full(len(rows), 1 / len(rows)),
        bounds=[(0, 1)] * len(rows),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    step = state.record["step"]
    assert step is not None
    np.testing.assert_allclose((w0 - state.w).double().numpy() / step, found.x @ rows, atol=2e-3)


@pytest.mark.parametrize("name", WITHOUT_RENEWAL)
def test_options_without_effect_after_renewal_are_refused_with_it(name: str) -> None:
    changed = next(value for option, value, *_ in CASES if option == name)
    with pytest.raises(ValueError, match=rf"{name} has no effect after renewal; set renewal=0 with it"):
        FUPareto(**{name: changed})
    FUPareto(**{name: changed, "renewal": 0.0})


@pytest.mark.parametrize("name", OF_RENEWAL)
def test_options_of_renewal_are_refused_without_it(name: str) -> None:
    changed = next(value for option, value, *_ in CASES if option == name)
    with pytest.raises(ValueError, match=rf"{name} has no effect without renewal"):
        FUPareto(**{name: changed, "renewal": 0.0})
    assert getattr(FUPareto(**{name: changed}).renew, name.removeprefix("renewal_")) == changed


def test_options_of_renewal_have_its_defaults_and_limits() -> None:
    assert FUPareto().renew == Renew()
    wrong: list[dict[str, Any]] = [{"renewal_remains": -0.1}, {"renewal_momentum": 1.0}, {"renewal_averaged": 1.1}]
    for options in wrong:
        with pytest.raises(ValueError, match=next(iter(options)).removeprefix("renewal_")):
            FUPareto(**options)
