"""FUGAS: the preference loss against its formula, the shield by hand."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fupareto.errors import UserError
from fupareto.federation.questions import PseudoGradient
from fupareto.federation.request import Request
from fupareto.methods.fugas import FUGAS
from fupareto.tasks.losses import Loss

from . import blobs
from .quadratics import Client, QuadraticFederation, linear, vector, walk
from .spies import Spy, clients

NPO, CE = Loss("npo", b=1.0), Loss("ce")


# The loss ------------------------------------------------------------------------------------------------------


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(z - max(row)) for z in row]
    return [p / sum(powers) for p in powers]


Rows = st.lists(st.floats(-8, 8, width=32), min_size=3, max_size=3)


@settings(max_examples=60)
@given(Rows, Rows, st.integers(0, 2), st.sampled_from([0.1, 0.5, 1.0, 3.0]))
def test_npo_is_its_formula_and_so_is_its_gradient(z: list[float], z0: list[float], y: int, b: float) -> None:
    """(2/b) log(1 + r^b), r = p / max(p0, 1e-6); its gradient is 2 r^b / (1 + r^b) times that of log p."""
    logits = torch.tensor([z], requires_grad=True)
    found = Loss("npo", b=b)(logits, torch.tensor([y]), torch.tensor([z0]))
    p = softmax(z)
    r = p[y] / max(softmax(z0)[y], 1e-6)
    assert found.shape == (1,)
    assert found.item() == pytest.approx(2 / b * math.log1p(r**b), rel=1e-4, abs=1e-5)
    weight = 2 * r**b / (1 + r**b)
    wanted = [weight * ((k == y) - p[k]) for k in range(3)]
    assert torch.autograd.grad(found.sum(), logits)[0][0].tolist() == pytest.approx(wanted, rel=1e-3, abs=1e-5)


def test_npo_at_the_reference_is_two_log_two_over_b_and_flat_once_unlikely() -> None:
    z, y = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([0])
    assert Loss("npo", b=0.5)(z, y, z).item() == pytest.approx(4 * math.log(2))
    gone = torch.tensor([[-40.0, 0.0, 0.0]], requires_grad=True)
    loss = NPO(gone, y, z)
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    assert torch.autograd.grad(loss.sum(), gone)[0].abs().max() < 1e-6


def test_a_sample_that_the_reference_never_knew_does_not_explode() -> None:
    z, z0 = torch.zeros(1, 2, requires_grad=True), torch.tensor([[-100.0, 100.0]])
    loss = NPO(z, torch.tensor([0]), z0)
    assert loss.item() == pytest.approx(2 * math.log1p(0.5e6), rel=1e-5)
    assert bool(torch.isfinite(torch.autograd.grad(loss.sum(), z)[0]).all())


def test_losses_without_a_reference_are_refused() -> None:
    for name in ("npo", "imitate"):
        assert Loss(name).referenced
        with pytest.raises(
            UserError, match=f"loss '{name}' needs the logits of a reference model, and none were given"
        ):
            Loss(name)(torch.zeros(1, 2), torch.tensor([0]))
    assert not Loss("ce").referenced


# The shield ----------------------------------------------------------------------------------------------------


def method(**options: Any) -> FUGAS:
    return FUGAS(**{"rounds": 2, "recovery_rounds": 0, "lr": 0.1, "decay": 1.0, **options})


def leaving(slope: list[float]) -> Client:
    """Not asked for cross-entropy while it leaves."""
    return Client([], [linear(slope)])


def test_a_step_that_conflicts_with_nobody_is_the_mean_forget_gradient() -> None:
    federation = QuadraticFederation(2, u=leaving([1.0, 0.0]), v=leaving([0.0, 3.0]), r=linear([1.0, 1.0]))
    state = walk(method(), federation, vector(0.0, 0.0), ["u", "v"])[1]
    assert state.w.tolist() == pytest.approx([-0.05, -0.15])


def test_a_conflict_slides_along_the_boundary() -> None:
    federation = QuadraticFederation(2, u=leaving([1.0, 0.0]), r=linear([-1.0, 1.0]))
    state = walk(method(), federation, vector(0.0, 0.0), ["u"])[1]
    assert state.w.tolist() == pytest.approx([-0.05, -0.05])  # d = (½, ½)


def test_each_forget_gradient_is_shielded_before_the_mean_is_taken() -> None:
    """Together u and v would not conflict with r; each alone, u does."""
    federation = QuadraticFederation(2, u=leaving([1.0, 0.0]), v=leaving([-4.0, 0.0]), r=linear([-1.0, 0.0]))
    state = walk(method(), federation, vector(0.0, 0.0), ["u", "v"])[1]
    assert state.w.tolist() == pytest.approx([0.2, 0.0])  # ((0, 0) + (-4, 0)) / 2, and not (-3, 0) / 2


def test_retained_gradients_are_not_added() -> None:
    federation = QuadraticFederation(2, u=leaving([1.0, 0.0]), r=linear([0.0, 50.0]))
    assert walk(method(), federation, vector(0.0, 0.0), ["u"])[1].w.tolist() == pytest.approx([-0.1, 0.0])


def test_the_shielded_direction_raises_nobodys_loss_to_first_order() -> None:
    """Client 2 has the labels that client 3 has, so forgetting it is a conflict."""
    spy = Spy(clients())
    fugas = method(rounds=9, lr=0.1, batch_size=4, b=0.5)
    state = fugas.init(spy, blobs.trained(), Request(("2",)), seed=7)
    held = 0
    for _ in range(5):
        spy.asked.clear()
        after = fugas.step(spy, state)
        asked = {i: q for i, q in spy.asked if isinstance(q, PseudoGradient)}
        assert set(asked) == {"0", "1", "2", "3"}
        rows = {i: a.gradient.double() for i, a in clients().ask(asked) if hasattr(a, "gradient")}
        d = (state.w - after.w).double()
        for r in state.retained:
            slope = float(d @ rows[r] / (d.norm() * rows[r].norm()))
            assert slope >= -1e-4
            assert after.record["cosines"][r] == pytest.approx(slope, abs=1e-4)
            held += slope < 1e-3
        assert all(float(d @ rows[u]) > 0 for u in state.forget)
        state = after
    assert held  # somebody did hold it back


def test_only_those_who_leave_are_sent_the_original_model() -> None:
    spy = Spy(clients())
    fugas = method(batch_size=4, b=0.5)
    first = fugas.step(spy, fugas.init(spy, blobs.trained(), Request(blobs.FORGET)))
    spy.asked.clear()
    down = spy.traffic.down
    fugas.step(spy, first)
    assert spy.traffic.down - down == 4 * (4 + 2) * 99  # w to everybody, w0 to two
    for i, q in spy.asked:
        assert isinstance(q, PseudoGradient)
        assert torch.equal(q.w, first.w)
        if i in blobs.FORGET:
            assert q.loss == Loss("npo", b=0.5)
            assert q.reference is not None
            assert torch.equal(q.reference, blobs.trained())
        else:
            assert (q.loss, q.reference) == (CE, None)


@pytest.mark.parametrize("side", [("u",), ("r",)], ids=["nobody leaves", "nobody stays"])
def test_without_one_of_the_sides_the_model_stays(side: tuple[str, ...]) -> None:
    federation = QuadraticFederation(2, u=leaving([1.0, 0.0]), r=linear([0.0, 1.0]))
    federation.absent = set(side)
    state = walk(method(), federation, vector(0.5, 0.5), ["u"])[1]
    assert state.w.tolist() == [0.5, 0.5]
    assert (state.record["step"], state.record["missing"]) == (None, dict.fromkeys(side, "absent"))


def test_senseless_hyper_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="b must be above 0"):
        FUGAS(b=0.0)
