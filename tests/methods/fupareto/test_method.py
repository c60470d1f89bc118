"""Unlearning: improvement, expansion, and what happens when neither finds a step."""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from fupareto.federation.questions import Gradient, TrialLosses
from fupareto.methods import FUPareto
from fupareto.pareto import trial_steps
from fupareto.tasks.losses import Loss
from presets import guard

from ..quadratics import QuadraticFederation, conflict, cosine, hinge, linear, quadratic, story, vector, walk

FORGET, RETAINED = ("u1", "u2"), ("r1", "r2", "r3")
MBS, CE = Loss("mbs", delta=1e-3, form="separating"), Loss("ce")
DELTA = 1e-3
ZERO = torch.zeros(6)


def unlearning(**options: Any) -> FUPareto:
    return guard(**{"rounds": 14, "recovery_rounds": 0, "lr": 0.1, **options})


def moves(states: Sequence[Any], phase: str) -> list[tuple[Any, Any]]:
    """The rounds of a phase that moved, as states before and after."""
    found = [(a, b) for a, b in pairwise(states) if b.phase == phase]
    return [(a, b) for a, b in found if b.record["step"] is not None]


@pytest.fixture(scope="module")
def states() -> list[Any]:
    return walk(unlearning(), conflict(), ZERO, FORGET)


def test_improvement_fails_expansion_acts_improvement_resumes(states: list[Any]) -> None:
    assert story(states) == "IIIIIiEIIIIiEI"


def test_an_expansion_follows_a_failed_improvement_and_nothing_else() -> None:
    for lr, s in ((0.1, 3), (0.1, 1), (0.3, 3), (1.0, 2)):
        told = story(walk(unlearning(rounds=40, lr=lr, s=s), conflict(), ZERO, FORGET))
        assert "E" in told
        for earlier, later in zip("I" + told, told, strict=False):
            assert (later in "Ee") == (earlier == "i"), told


def test_a_failed_improvement_leaves_the_model_bit_for_bit(states: list[Any]) -> None:
    failed = [k for k, letter in enumerate(story(states)) if letter == "i"]
    for k in failed:
        assert torch.equal(states[k].w, states[k + 1].w)
        assert states[k + 1].record["tried"] == list(trial_steps(0.1 * 0.999**k, 3, enlarge=True))
        assert states[k + 1].expand_next


def test_an_improvement_lowers_every_clients_loss_sufficiently(states: list[Any]) -> None:
    clients = conflict()
    for before, after in moves(states, "improve"):
        for i in clients.ids:
            loss = MBS if i in FORGET else CE
            fall = clients.loss(i, before.w, loss) - clients.loss(i, after.w, loss)
            slope = clients.gradient(i, before.w, loss).double() @ (before.w - after.w).double()
            assert slope > 0
            assert fall >= 1e-4 * float(slope) - 1e-9
            assert after.record["losses"][i] == pytest.approx(clients.loss(i, before.w, loss))


def test_an_improvement_is_a_common_descent_direction(states: list[Any]) -> None:
    for before, after in moves(states, "improve"):
        d = (before.w - after.w) / after.record["step"]
        for i, recorded in after.record["cosines"].items():
            gradient = conflict().gradient(i, before.w, MBS if i in FORGET else CE)
            assert cosine(d, gradient) == pytest.approx(recorded, abs=1e-4)
            assert recorded > 0


def test_an_expansion_is_orthogonal_to_every_retained_gradient(states: list[Any]) -> None:
    clients, found = conflict(), moves(states, "expand")
    assert len(found) == 2
    for before, after in found:
        for r in RETAINED:
            assert abs(cosine(after.w - before.w, clients.gradient(r, before.w, CE))) <= 1e-5
            assert abs(after.record["cosines"][r]) <= 1e-5
        for u in FORGET:
            assert clients.loss(u, after.w, MBS) < clients.loss(u, before.w, MBS)
            assert after.record["cosines"][u] > 0


@pytest.mark.parametrize(("harm", "asked"), [(None, set(FORGET)), (1.0, {*FORGET, *RETAINED})])
def test_retained_clients_are_asked_about_an_expansion_step_where_harm_is_limited(
    harm: float | None, asked: set[str]
) -> None:
    clients, method = conflict(), unlearning(expansion_harm=harm)
    states = walk(method, clients, ZERO, FORGET)
    before = next(s for s in states if s.expand_next)
    clients.asked.clear()
    method.step(clients, before)
    assert {i for i, q in clients.asked if isinstance(q, Gradient)} == {*FORGET, *RETAINED}
    assert {i for i, q in clients.asked if isinstance(q, TrialLosses)} == asked
    eta = 0.1 * 0.999**before.round
    steps = {q.steps for _, q in clients.asked if isinstance(q, TrialLosses)}
    assert steps == {trial_steps(eta, 3, enlarge=False)}


@pytest.mark.parametrize(("harm", "halvings"), [(None, 0), (8.0, 0), (1.0, 2), (0.25, 3), (0.05, None)])
def test_an_expansion_takes_the_largest_step_that_does_not_harm_those_who_stay(
    harm: float | None, halvings: int | None
) -> None:
    """Orthogonal is unnoticed to first order only: at a large rate, the second order is all there is."""
    clients = conflict()
    stuck = next(s for s in walk(unlearning(), clients, ZERO, FORGET) if s.expand_next)
    before = dataclasses.replace(stuck, rate=2.0)

    def expand(limit: float | None) -> Any:
        return unlearning(expansion_harm=limit, lr=2.0).step(clients, before)

    def cost(w: torch.Tensor) -> float:
        return float(np.mean([clients.loss(i, w, CE) for i in RETAINED]))

    free, found = expand(None), expand(harm)
    steps = trial_steps(2.0 * 0.999**before.round, 3, enlarge=False)
    direction = (before.w - free.w) / free.record["step"]
    limit = (1 + (np.inf if harm is None else harm)) * cost(before.w)
    harmless = [step for step in steps if cost(before.w - step * direction) <= limit]
    assert harmless == ([] if halvings is None else list(steps[halvings:]))  # the rate is one that shows something
    assert found.record["step"] == (max(harmless) if harmless else None)
    assert torch.equal(found.w, before.w) == (not harmless)


@pytest.mark.parametrize("harm", [1.0, 0.1])
def test_expansions_in_a_row_do_not_add_up(harm: float) -> None:
    """At a rate too large for improvement, what expansions cost until it succeeds again is limited as a whole."""
    clients = conflict()
    method = unlearning(rounds=40, expansion_harm=harm, lr=2.0, s=0)
    states = walk(method, clients, ZERO, FORGET)
    told = story(states)
    assert "EiE" in told or "EiiE" in told or "Eie" in told, told

    def cost(w: torch.Tensor) -> float:
        return float(np.mean([clients.loss(i, w, CE) for i in RETAINED]))

    calm: float | None = None
    for before, after in pairwise(states):
        if after.phase == "improve" and after.record["step"] is not None:
            calm = None
        elif after.phase == "expand":
            calm = cost(before.w) if calm is None else calm
            assert cost(after.w) <= (1 + harm) * calm + 1e-6


def test_one_forget_client_expands_along_its_projected_gradient() -> None:
    """With one client there is nothing to be fair about: the guidance is constant and left out."""
    states = walk(unlearning(), conflict(), ZERO, ["u1"])
    ((before, after),) = moves(states, "expand")
    clients = conflict()
    g = clients.gradient("u1", before.w, MBS).double()
    others = torch.stack([clients.gradient(i, before.w, CE) for i in ("u2", *RETAINED)]).double()
    projected = g - others.T @ torch.linalg.lstsq(others.T, g).solution
    assert cosine(before.w - after.w, projected) == pytest.approx(1.0, abs=1e-6)
    off = walk(unlearning(expansion_guidance="off"), conflict(), ZERO, ["u1"])
    assert torch.equal(off[-1].w, states[-1].w)


def test_duplicate_clients_are_no_obstacle() -> None:
    single = conflict().clients
    clients = QuadraticFederation(6, **single, u3=single["u1"], r4=single["r1"], r5=single["r1"])
    states = walk(unlearning(rounds=30), clients, ZERO, ["u1", "u2", "u3"])
    found = moves(states, "expand")
    assert found
    for before, after in found:
        for r in (*RETAINED, "r4", "r5"):
            assert abs(cosine(after.w - before.w, clients.gradient(r, before.w, CE))) <= 1e-5


# Dead objectives ---------------------------------------------------------------------------------------------------


def bystander(slope: float, room: float) -> QuadraticFederation:
    """u1 is forgotten, and un-forgotten at ``slope`` once x grows by more than ``room``; u2 wants x to grow."""
    return QuadraticFederation(
        2,
        u1=hinge([slope, 0.0], slope * room + DELTA),
        u2=hinge([-1.0, 0.0], -9.0),
        r=quadratic([0.0, 9.0], [0.0, 0.1]),
    )


def test_a_forgotten_client_leaves_the_hull_but_keeps_its_veto() -> None:
    first = walk(unlearning(rounds=1), bystander(1.0, 0.05), vector(0.0, 0.0), FORGET)[-1]
    free = walk(unlearning(rounds=1), bystander(1.0, 9.0), vector(0.0, 0.0), FORGET)[-1]
    assert first.record["losses"]["u1"] == first.record["cosines"]["u1"] == 0.0
    assert free.record["step"] == pytest.approx(0.8)
    assert 0 < first.record["step"] < 0.8
    tried = first.record["tried"]
    across = float(first.w[0]) / first.record["step"]
    assert across * tried[-1] <= 0.05 < across * tried[-2]  # the largest step that does not un-forget u1
    assert not first.record["forgotten"]  # u2 is not


@pytest.mark.parametrize("goal", [0.0, 2e-4])
def test_the_veto_allows_a_millionth_or_what_counts_as_forgotten(goal: float) -> None:
    """The first step moves x by s; u1 then loses slope · s, below or above its allowance."""
    method, allowance = unlearning(rounds=1, forgotten_loss=goal), max(1e-6, goal)
    s = float(walk(method, bystander(1.0, 9.0), vector(0.0, 0.0), FORGET)[-1].w[0])
    inside = walk(method, bystander(0.9 * allowance / s, 0.0), vector(0.0, 0.0), FORGET)[-1]
    outside = walk(method, bystander(1.1 * allowance / s, 0.0), vector(0.0, 0.0), FORGET)[-1]
    assert len(inside.record["tried"]) == 1
    assert len(outside.record["tried"]) == 2


def test_all_forgotten_goes_on_improving_and_never_expands() -> None:
    torn = QuadraticFederation(2, u=hinge([1.0, 0.0], 1.0), r1=linear([1.0, 0.0]), r2=linear([-1.0, 0.0]))
    assert story(walk(unlearning(rounds=6), torn, vector(0.0, 0.0), ["u"])) == "iiiiii"
    calm = QuadraticFederation(2, u=hinge([1.0, 0.0], 1.0), r=quadratic([-1.0, -1.0], [0.5, 0.5]))
    states = walk(unlearning(rounds=6), calm, vector(0.0, 0.0), ["u"])
    assert story(states) == "IIIIII"
    losses = [s.record["losses"]["r"] for s in states[1:]]
    assert losses == sorted(losses, reverse=True)
    assert all(s.record["forgotten"] for s in states[1:])


def test_a_missing_forget_client_is_never_counted_as_forgotten() -> None:
    clients = bystander(1.0, 9.0)
    clients.absent = {"u2"}
    states = walk(unlearning(rounds=5), clients, vector(0.0, 0.0), FORGET)
    assert not any(s.record["forgotten"] for s in states[1:])
    assert len(states) == 6


@pytest.mark.parametrize(("absent", "side"), [(FORGET, "forget"), (RETAINED, "retained")])
def test_the_model_stays_while_a_whole_side_is_silent(absent: tuple[str, ...], side: str) -> None:
    clients = conflict()
    clients.absent = set(absent)
    states = walk(unlearning(rounds=2), clients, ZERO, FORGET)
    assert story(states) == "ii"
    assert torch.equal(states[-1].w, ZERO)
    assert side in states[-1].record["note"]
    assert set(states[-1].record["missing"]) == set(absent)
    assert not states[-1].record["forgotten"]
    clients.absent = set()
    assert walk(unlearning(rounds=1), clients, states[-1].w, FORGET)[-1].record["step"] is not None


# Stalling ----------------------------------------------------------------------------------------------------------


def deadlock() -> QuadraticFederation:
    return QuadraticFederation(2, u=linear([1.0, 0.0], 9.0), r=linear([-3.0, 0.0], 999.0))


def test_a_pareto_stationary_point_is_a_failure_without_a_trial() -> None:
    states = walk(unlearning(rounds=2), deadlock(), vector(0.0, 0.0), ["u"])
    assert story(states) == "ie"
    assert states[1].record["tried"] == states[2].record["tried"] == []
    assert torch.equal(states[-1].w, vector(0.0, 0.0))


def test_three_rounds_without_update_halve_the_rate_and_the_stage_ends_below_a_64th() -> None:
    states = walk(unlearning(rounds=99), deadlock(), vector(0.0, 0.0), ["u"])
    assert story(states) == ("ie" * 11)[:21]
    assert [s.rate for s in states[1:]] == [0.1 / 2 ** (k // 3) for k in range(1, 22)]
    assert states[-1].rate == 0.1 / 2**7
    assert states[-2].rate == 0.1 / 2**6


def test_a_round_that_moves_starts_the_count_anew() -> None:
    states = walk(unlearning(rounds=40), conflict(), ZERO, FORGET)
    assert story(states).count("i") > 3
    assert {s.rate for s in states} == {0.1}
    assert [s.stalled for s in states[1:]] == [int(letter in "ie") for letter in story(states)]


def test_the_rate_decays_over_the_whole_run_failed_rounds_included() -> None:
    states = walk(
        unlearning(rounds=40, recovery_rounds=5, recovery_lr=0.3, recovery="none"), deadlock(), vector(0.0, 0.0), ["u"]
    )
    assert story(states) == ("ie" * 11)[:21] + "RRRRR"
    for k, after in enumerate(states[1:]):
        assert after.record["lr"] == states[k].rate * 0.999**k
    assert [s.rate for s in states[21:]] == [0.3] * 6
    assert states[-1].started == 21


# Failed expansions -------------------------------------------------------------------------------------------------


def overshoot(stiffness: float) -> QuadraticFederation:
    """No step in the range is short enough for u1, whose valley is steep; u2 gains from every step."""
    return QuadraticFederation(
        3,
        u1=quadratic([0.0, 0.0, 0.0], [stiffness, 0.0, 0.0]),
        u2=linear([0.0, 0.3, 0.0], 9.0),
        r=quadratic([0.0, 0.0, 1.0], [0.0, 0.0, 0.5]),
    )


START = vector(1e-4, 0.0, 0.0)
UNGUIDED: dict[str, Any] = {"rounds": 2, "guidance": "off", "expansion_guidance": "off", "forgotten_loss": 0.0}


def test_fallbacks_when_no_expansion_step_passes() -> None:
    ends = {}
    for fallback in ("best", "skip"):
        clients = overshoot(100.0)
        states = walk(unlearning(**UNGUIDED, expansion_fallback=fallback), clients, START, FORGET)
        ends[fallback] = states[-1]
        assert story(states) == ("ie" if fallback == "skip" else "iE")
        assert ends[fallback].record["tried"] == list(trial_steps(0.1 * 0.999, 3, enlarge=False))
    assert torch.equal(ends["skip"].w, START)
    direction = (START - ends["best"].w) / ends["best"].record["step"]
    sums = [
        sum(clients.loss(u, START - step * direction, MBS) for u in FORGET) for step in ends["best"].record["tried"]
    ]
    assert ends["best"].record["step"] == ends["best"].record["tried"][int(np.argmin(sums))]
    assert min(sums) < sum(clients.loss(u, START, MBS) for u in FORGET)


def test_best_stays_where_every_step_makes_the_sum_worse() -> None:
    states = walk(unlearning(**UNGUIDED), overshoot(1e5), START, FORGET)
    assert story(states) == "ie"
    assert torch.equal(states[-1].w, START)


def test_no_fallback_takes_a_step_that_nobody_answered_for() -> None:
    class Silent(QuadraticFederation):
        def ask(self, questions: Any) -> Any:
            self.absent = {i for i, q in questions.items() if isinstance(q, TrialLosses)}
            return super().ask(questions)

    clients = Silent(3, **overshoot(100.0).clients)
    states = walk(unlearning(**UNGUIDED), clients, START, FORGET)
    assert torch.equal(states[-1].w, START)
