"""The paper's M1 to M8: each preset turns one switch, and the switch does what the ablation says."""

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fupareto.federation.questions import Gradient, TrialLosses
from fupareto.methods import FUPareto
from fupareto.methods.fupareto.options import ABLATIONS
from fupareto.methods.registry import find, presets
from fupareto.pareto import Array
from fupareto.tasks.losses import Loss
from presets import guard

from ..quadratics import QuadraticFederation, conflict, cosine, hinge, quadratic, story, vector, walk

FORGET, RETAINED = ("u1", "u2"), ("r1", "r2", "r3")
MBS, CE = Loss("mbs", delta=1e-3, form="separating"), Loss("ce")
NAMES = ("m1", *ABLATIONS)
BASE: dict[str, Any] = {"rounds": 8, "recovery_rounds": 0, "lr": 0.1}


def method(name: str = "", **options: Any) -> FUPareto:
    found = find(f"fupareto:{name or 'guard'}", {**BASE, **options})
    assert isinstance(found, FUPareto)
    return found


@pytest.fixture(scope="module")
def plain() -> list[Any]:
    """Five improvements, a failed one, an expansion, an improvement."""
    states = walk(method(), conflict(), torch.zeros(6), FORGET)
    assert story(states) == "IIIIIiEI"
    return states


def test_every_ablation_of_the_paper_is_there() -> None:
    assert presets("fupareto") == ["fupareto:guard", *(f"fupareto:m{k}" for k in range(1, 9)), "fupareto:paper"]


@pytest.mark.parametrize("name", NAMES)
def test_an_ablation_changes_one_thing_and_takes_options(name: str) -> None:
    default, found = guard(**{**BASE, "s": 1}), method(name, s=1)
    changed = {k for k, v in dataclasses.asdict(found).items() if v != getattr(default, k)}
    assert len(changed) + (type(found) is not FUPareto) == 1


# What must not change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m4", "m5", "m6"])
def test_ablations_of_the_expansion_leave_improvement_alone(name: str, plain: list[Any]) -> None:
    states = walk(method(name), conflict(), torch.zeros(6), FORGET)
    for k in range(7):
        assert torch.equal(states[k].w, plain[k].w)
    assert not torch.equal(states[7].w, plain[7].w)


@pytest.mark.parametrize("name", ["m2", "m3"])
def test_ablations_of_the_guidance_leave_expansion_alone(name: str, plain: list[Any]) -> None:
    assert not torch.equal(method(name).step(conflict(), plain[0]).w, plain[1].w)
    before = plain[6]
    assert before.expand_next
    assert torch.equal(method(name).step(conflict(), before).w, plain[7].w)


@pytest.mark.parametrize("name", ["m1", "m2", "m3", "m4", "m5", "m6"])
def test_whoever_leaves_still_minimises_mbs(name: str) -> None:
    clients = conflict()
    walk(method(name), clients, torch.zeros(6), FORGET)
    losses = {(i, q.loss) for i, q in clients.asked if isinstance(q, Gradient)}
    assert losses == {*((u, MBS) for u in FORGET), *((r, CE) for r in RETAINED)}


# What must change ----------------------------------------------------------------------------------------------


def test_m1_follows_the_mean_forget_gradient_by_eta_and_asks_nobody_about_it() -> None:
    clients = conflict()
    states = walk(method("m1", decay=0.5), clients, torch.zeros(6), FORGET)
    assert not [q for _, q in clients.asked if isinstance(q, TrialLosses)]
    for k in range(4):
        mean = torch.stack([clients.gradient(u, states[k].w, MBS) for u in FORGET]).mean(0)
        torch.testing.assert_close(states[k + 1].w, states[k].w - 0.1 * 0.5**k * mean)
        assert states[k + 1].record["step"] == pytest.approx(0.1 * 0.5**k)
        assert states[k + 1].record["tried"] == []
    losses = [[clients.loss(r, s.w, CE) for r in RETAINED] for s in states[:2]]
    assert any(after > before for before, after in zip(*losses, strict=True))  # and somebody who stays pays


def gradients(w: Tensor) -> Array:
    """The scaled gradients of the improvement: all of one length."""
    clients = conflict()
    rows = np.array([clients.gradient(i, w, MBS if i in FORGET else CE).double().numpy() for i in clients.ids])
    norms = np.linalg.norm(rows, axis=1)
    return np.asarray(rows * (norms.mean() / norms)[:, None])


def guide(losses: Array, preference: Array) -> Array:
    """Unit derivative of the angle between losses and preference."""
    p, v = preference / np.linalg.norm(preference), losses / np.linalg.norm(losses)
    across = (p @ v) * v - p
    return np.asarray(across / np.linalg.norm(across))


def losses_at(w: Tensor, ids: tuple[str, ...]) -> Array:
    clients = conflict()
    return np.array([clients.loss(i, w, MBS if i in FORGET else CE) for i in ids])


def nearest(hull: Array) -> Tensor:
    """The point of the convex hull nearest to the origin: the nearest of all faces' own, where it lies inside."""
    best = hull[np.linalg.norm(hull, axis=1).argmin()]
    for count in range(2, len(hull) + 1):
        for chosen in combinations(range(len(hull)), count):
            face = hull[list(chosen)]
            rest = np.linalg.lstsq((face[1:] - face[0]).T, -face[0], rcond=None)[0]
            weights = np.append(1 - rest.sum(), rest)
            point = weights @ face
            if (weights >= -1e-12).all() and point @ point < best @ best:
                best = point
    return torch.from_numpy(best)


PREFERENCES = {"": [0.0, 0.0, 1.0, 1.0, 1.0], "m2": None, "m3": [1.0] * 5}


@pytest.mark.parametrize("name", PREFERENCES)
def test_m2_and_m3_improve_without_guidance_or_towards_equal_losses(name: str, plain: list[Any]) -> None:
    for before in plain[:3]:
        after = method(name).step(conflict(), before)
        hull, preference = gradients(before.w), PREFERENCES[name]
        if preference is not None:
            h = guide(losses_at(before.w, conflict().ids), np.array(preference))
            hull = np.vstack([hull, h @ hull])
        wanted = nearest(hull)
        assert cosine(before.w - after.w, wanted) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("name", "guided", "projected"), [("", True, True), ("m4", False, True), ("m5", True, False)])
def test_m4_and_m5_expand_without_guidance_or_without_projection(
    name: str, guided: bool, projected: bool, plain: list[Any]
) -> None:
    before = plain[6]
    after = method(name).step(conflict(), before)
    rows = gradients(before.w)
    hull, stay = rows[:2], rows[2:]
    if projected:
        hull = hull - np.linalg.lstsq(stay.T, hull.T, rcond=None)[0].T @ stay
    if guided:
        hull = np.vstack([hull, guide(losses_at(before.w, FORGET), np.ones(2)) @ hull])
    wanted = nearest(hull)
    assert cosine(before.w - after.w, wanted) == pytest.approx(1.0, abs=1e-6)
    along = [abs(cosine(after.w - before.w, conflict().gradient(r, before.w, CE))) for r in RETAINED]
    assert (max(along) < 1e-5) == projected
    assert projected or max(along) > 0.1


def test_m6_tries_from_the_largest_step_when_it_expands(plain: list[Any]) -> None:
    before = plain[6]
    eta = 0.1 * 0.999**6
    for name, largest in (("", eta), ("m6", 8 * eta)):
        clients = conflict()
        method(name).step(clients, before)
        (steps,) = {q.steps for _, q in clients.asked if isinstance(q, TrialLosses)}
        assert steps[0] == pytest.approx(largest)
        assert steps[-1] == pytest.approx(eta / 8)
        assert {i for i, q in clients.asked if isinstance(q, TrialLosses)} == {*FORGET, *RETAINED}


@pytest.mark.parametrize(("name", "loss"), [("m7", Loss("uce")), ("m8", Loss("kl"))])
def test_m7_and_m8_change_what_those_who_leave_minimise(name: str, loss: Loss) -> None:
    clients = conflict()
    walk(method(name, rounds=2), clients, torch.zeros(6), FORGET)
    losses = {(i, q.loss) for i, q in clients.asked if isinstance(q, Gradient | TrialLosses)}
    assert losses == {*((u, loss) for u in FORGET), *((r, CE) for r in RETAINED)}


def test_m1_goes_on_when_nobody_who_stays_answers() -> None:
    federation = conflict()
    federation.absent = {"r1", "r2", "r3"}
    method = find("fupareto:m1", {"rounds": 1, "recovery_rounds": 0})
    (before, after) = walk(method, federation, torch.zeros(6), ["u1", "u2"])
    assert not torch.equal(before.w, after.w)
    assert set(after.record["missing"]) == {"r1", "r2", "r3"}


def test_m1_stays_while_no_forget_client_answers() -> None:
    federation = conflict()
    federation.absent = set(FORGET)
    before, after = walk(method("m1", rounds=1), federation, torch.zeros(6), FORGET)
    assert torch.equal(before.w, after.w)
    assert after.record["step"] is None
    assert set(after.record["missing"]) == set(FORGET)
    assert not after.record["forgotten"]


def test_m1_stays_where_everybody_is_forgotten() -> None:
    clients = QuadraticFederation(2, u=hinge([1.0, 0.0], 1.0), r=quadratic([1.0, 1.0], [1.0, 1.0]))
    before, after = walk(method("m1", rounds=1), clients, vector(0.0, 0.0), ["u"])
    assert torch.equal(before.w, after.w)
    assert after.record["losses"]["u"] == 0.0
    assert after.record["step"] is None
