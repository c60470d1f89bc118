"""Recovery: what the retained clients win back, and what is kept from coming back with it."""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fupareto.federation.questions import Gradient
from fupareto.methods import FUPareto
from fupareto.pareto import combine, gram, min_norm
from fupareto.tasks.losses import Loss
from presets import guard

from ..quadratics import Client, QuadraticFederation, cosine, hinge, linear, quadratic, story, vector, walk

CE, GUARD = Loss("ce"), Loss("mbs", delta=1.0)
RETAINED = ("r1", "r2")
ZERO = torch.zeros(5)


def federation() -> QuadraticFederation:
    """A forget client, and two retained ones that agree on most."""
    return QuadraticFederation(
        5,
        u=Client([quadratic([1.0, 1.0, 0.0, 0.0, 0.0], [1.0] * 5)], [hinge([1.0, 0.2, 0.0, 0.0, 0.1], -0.3)]),
        r1=quadratic([-0.1, 0.5, 1.0, 0.5, 0.0], [1.0, 0.5, 0.3, 0.4, 0.7]),
        r2=quadratic([-0.2, 0.3, 0.4, 1.0, 0.1], [0.8, 0.3, 0.5, 0.2, 0.9]),
    )


def method(recovery: str, **options: Any) -> FUPareto:
    return guard(**{"rounds": 6, "recovery_rounds": 6, "lr": 0.3, "recovery": recovery, **options})


def recovered(recovery: str, **options: Any) -> list[tuple[Any, Any]]:
    """The recovery rounds that moved, as states before and after; w0 is put where the retained clients long for."""
    clients, m = federation(), method(recovery, **options)
    state = next(s for s in walk(m, clients, ZERO, ["u"]) if s.stage == "recovered")
    state = dataclasses.replace(state, w0=vector(-0.4, -0.1, 0.6, 0.4, 0.0))
    rounds = []
    while not state.done:
        before, state = state, m.step(clients, state)
        rounds.append((before, state))
    assert len(rounds) == 6
    moved = [(a, b) for a, b in rounds if b.record["step"] is not None]
    assert moved
    return moved


def along(before: Any, after: Any) -> float:
    """The cosine between the step taken and the way from w0 to the model."""
    return cosine(after.w - before.w, before.w - before.w0)


def farther(before: Any, after: Any) -> float:
    """By how much the distance to w0 grew."""
    return float((after.w - after.w0).norm() - (before.w - before.w0).norm())


ANCHORS = ["guard", "away", "printed", "project", "none"]


@pytest.mark.parametrize("recovery", ANCHORS)
def test_every_accepted_step_lowers_every_retained_loss(recovery: str) -> None:
    clients = federation()
    for before, after in recovered(recovery):
        for r in RETAINED:
            slope = clients.gradient(r, before.w, CE).double() @ (before.w - after.w).double()
            fall = clients.loss(r, before.w, CE) - clients.loss(r, after.w, CE)
            assert slope > 0
            assert fall >= 1e-4 * float(slope) - 1e-9


@pytest.mark.parametrize("recovery", ANCHORS)
def test_forget_clients_are_not_asked_any_more(recovery: str) -> None:
    clients, m = federation(), method(recovery)
    state = walk(method(recovery, recovery_rounds=0), federation(), ZERO, ["u"])[-2]  # one round before the switch
    state = m.step(clients, state)
    assert state.stage == "recovered"
    asked = [q.loss for i, q in clients.asked if i == "u" and isinstance(q, Gradient)]
    assert asked[1:] == ([CE, GUARD] if recovery == "guard" else [])  # the first is the round's own
    clients.asked.clear()
    while not state.done:
        state = m.step(clients, state)
    assert {i for i, _ in clients.asked} == set(RETAINED)


def test_without_recovery_rounds_the_guards_are_never_asked() -> None:
    clients = federation()
    walk(method("guard", recovery_rounds=0), clients, ZERO, ["u"])
    assert not [q for i, q in clients.asked if i == "u" and isinstance(q, Gradient) and q.loss in (CE, GUARD)]


def test_guarded_steps_are_orthogonal_to_everything_that_would_relearn() -> None:
    rounds, clients = recovered("guard"), federation()
    switch = walk(method("guard", recovery_rounds=0), federation(), ZERO, ["u"])[-1].w
    guards = [clients.gradient("u", switch, loss) for loss in (CE, GUARD)]
    assert rounds[0][0].guard.tolist() == torch.stack(guards).tolist()
    for before, after in rounds:
        assert torch.equal(after.guard, rounds[0][0].guard)
        for direction in guards:
            assert abs(cosine(after.w - before.w, direction)) <= 1e-5


def test_unguarded_steps_are_not() -> None:
    before, after = recovered("none")[0]
    assert abs(cosine(after.w - before.w, federation().gradient("u", before.w, CE))) > 1e-2


def test_unanchored_recovery_comes_back() -> None:
    """The problem is one in which the anchor has something to do."""
    assert along(*recovered("none")[0]) < -0.1


def test_away_does_not_come_back() -> None:
    for before, after in recovered("away"):
        assert along(before, after) >= -1e-5
        assert farther(before, after) >= -1e-6


def test_printed_comes_back() -> None:
    """To first order; the step here is short."""
    for before, after in recovered("printed", recovery_lr=0.01):
        assert along(before, after) < 0
        assert farther(before, after) < 0


def test_project_keeps_across() -> None:
    assert all(abs(along(*pair)) <= 1e-5 for pair in recovered("project"))


def hull_direction(rows: Sequence[Tensor]) -> Tensor:
    stacked = torch.stack([r / r.norm() for r in rows])
    return combine(min_norm(gram(stacked)), stacked)


@pytest.mark.parametrize(("recovery", "sign"), [("none", 0.0), ("away", -1.0), ("printed", 1.0)])
def test_the_direction_is_the_min_norm_point_with_its_anchor(recovery: str, sign: float) -> None:
    clients = federation()
    for before, after in recovered(recovery):
        rows = [clients.gradient(r, before.w, CE) for r in RETAINED]
        expected = hull_direction([*rows, sign * (before.w - before.w0)] if sign else rows)
        assert cosine(before.w - after.w, expected) == pytest.approx(1.0, abs=1e-5)


def test_without_equal_norms_the_anchor_has_length_one() -> None:
    clients = federation()
    before, after = recovered("away", equal_norms=False)[0]
    anchor = (before.w0 - before.w) / (before.w - before.w0).norm()
    rows = torch.stack([*(clients.gradient(r, before.w, CE) for r in RETAINED), anchor])
    assert min_norm(gram(rows))[-1] > 0
    assert cosine(before.w - after.w, combine(min_norm(gram(rows)), rows)) == pytest.approx(1.0, abs=1e-5)


def stuck() -> QuadraticFederation:
    """Unlearning cannot move: the two sides pull in opposite directions, and nothing else is at stake."""
    return QuadraticFederation(2, u=linear([1.0, 0.0], 9.0), r=quadratic([1.0, 0.0], [1.0, 1.0]))


@pytest.mark.parametrize("recovery", ["away", "printed", "project", "none"])
def test_at_w0_there_is_no_anchor(recovery: str) -> None:
    states = walk(method(recovery, rounds=1, recovery_rounds=1), stuck(), vector(0.0, 0.0), ["u"])
    assert story(states) == "iR"
    assert states[-1].w[0] > 0
    assert states[-1].w[1] == 0


def test_without_a_search_every_round_takes_the_rate() -> None:
    clients = federation()
    states = walk(method("none", recovery_search=False, recovery_lr=0.05), clients, ZERO, ["u"])
    found = [(before, after) for before, after in pairwise(states) if after.phase == "recover"]
    assert len(found) == 6
    for before, after in found:
        assert after.record["step"] == after.record["lr"] == 0.05 * 0.999**before.round
        assert after.record["tried"] == []


def test_recovery_rounds_are_counted_from_the_switch() -> None:
    states = walk(method("away", rounds=4, recovery_rounds=3), federation(), ZERO, ["u"])
    assert [s.stage for s in states] == ["unlearned"] * 4 + ["recovered"] * 4
    assert [s.done for s in states] == [False] * 7 + [True]
    assert states[-1].started == 4


def test_recovery_that_stalls_ends_early() -> None:
    """The guard, u's gradient, is all there is to r's: nothing may be recovered."""
    states = walk(method("guard", rounds=1, recovery_rounds=50, recovery_lr=0.4), stuck(), vector(0.0, 0.0), ["u"])
    assert story(states) == "i" + "r" * 21
    assert states[-1].rate == 0.4 / 2**7


def test_silent_retained_clients_leave_the_model_where_it_is() -> None:
    clients, m = federation(), method("guard")
    state = next(s for s in walk(m, clients, ZERO, ["u"]) if s.stage == "recovered")
    clients.absent = set(RETAINED)
    after = m.step(clients, state)
    assert torch.equal(after.w, state.w)
    assert "retained" in after.record["note"]
    assert set(after.record["missing"]) == set(RETAINED)


def test_a_run_goes_on_without_guards_and_says_so() -> None:
    class Leaving(QuadraticFederation):
        def ask(self, questions: Any) -> Any:
            last = any(isinstance(q, Gradient) and q.loss in (CE, GUARD) for i, q in questions.items() if i == "u")
            self.absent = {"u"} if last else set()
            return super().ask(questions)

    states = walk(method("guard"), Leaving(5, **federation().clients), ZERO, ["u"])
    switch = next(s for s in states if s.stage == "recovered")
    assert tuple(switch.guard.shape) == (0, 5)
    assert "u" in switch.record["missing"]
    assert "R" in story(states)


def test_recovery_does_not_claim_that_anybody_is_forgotten() -> None:
    clients = federation()
    states = walk(method("none", rounds=1), clients, ZERO, ["u"])
    assert clients.loss("u", states[-1].w, Loss("mbs")) > 0.01
    assert not states[-1].record.get("forgotten")


def test_a_retained_client_inside_the_guards_does_not_stop_the_others() -> None:
    """r1 lives on what u must not relearn; r2 could still be recovered at no cost to r1, to first order."""
    clients = QuadraticFederation(
        3, u=linear([1.0, 0.0, 0.0], 9.0), r1=linear([-1.0, 0.0, 0.0], 9.0), r2=quadratic([0.0, 1.0, 1.0], [0.5] * 3)
    )
    states = walk(method("guard", rounds=1, recovery_rounds=3), clients, vector(0.0, 0.0, 0.0), ["u"])
    assert "R" in story(states)
    assert np.abs(float(states[-1].w[0])) < 1e-5
