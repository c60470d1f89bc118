"""FedOSD: the orthogonal steepest direction and the recovery that does not revert, by hand and on networks."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fupareto.federation.questions import PseudoGradient
from fupareto.federation.request import Request
from fupareto.methods.fedosd import FedOSD, orthogonal_steepest, without_
from fupareto.tasks.losses import Loss

from . import blobs
from .quadratics import Client, QuadraticFederation, cosine, linear, vector, walk
from .spies import Spy, clients


def rows(seed: int, count: int, size: int = 12) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


# The direction -------------------------------------------------------------------------------------------------


@given(st.integers(0, 9999), st.integers(1, 3), st.integers(1, 8))
def test_orthogonal_to_every_retained_gradient_and_of_the_old_length(seed: int, forget: int, retained: int) -> None:
    gradients = rows(seed, forget + retained)
    found = orthogonal_steepest(gradients, list(range(forget)), list(range(forget, forget + retained)))
    assert found is not None
    mean = gradients[:forget].mean(0)
    assert float(found.norm()) == pytest.approx(float(mean.norm()), rel=1e-5)
    assert all(abs(cosine(found, g)) < 1e-5 for g in gradients[forget:])
    others = gradients[forget:].double()
    left = mean.double() - others.T @ torch.linalg.lstsq(others.T, mean.double()).solution
    assert cosine(found, left) == pytest.approx(1.0, abs=1e-6)  # the steepest of them


def test_the_direction_by_hand() -> None:
    gradients = torch.tensor([[3.0, 4.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = orthogonal_steepest(gradients, [0], [1, 2, 3])  # a duplicate and a zero are no obstacle
    assert found is not None
    assert found.tolist() == pytest.approx([0.0, 5.0, 0.0])


def test_the_mean_is_taken_before_the_length() -> None:
    gradients = torch.tensor([[2.0, 2.0, 0.0], [0.0, -2.0, 4.0], [1.0, 0.0, 0.0]])
    found = orthogonal_steepest(gradients, [0, 1], [2])
    assert found is not None
    assert found.tolist() == pytest.approx([0.0, 0.0, 5**0.5])  # mean (1, 0, 2), of which (0, 0, 2) is left


def test_nothing_left_is_no_direction() -> None:
    assert orthogonal_steepest(torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), [0], [1, 2]) is None
    assert orthogonal_steepest(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), [0], [1]) is None


@given(st.integers(0, 9999), st.integers(1, 5))
def test_recovery_takes_the_way_back_out_of_every_gradient(seed: int, count: int) -> None:
    gradients, back = rows(seed, count), rows(seed + 1, 1)[0]
    found = without_(gradients.clone(), back)
    for g, left in zip(gradients, found, strict=True):
        assert abs(cosine(left, back)) < 1e-5
        assert float(left.norm()) == pytest.approx(float(g.norm()), rel=1e-4)
        a = back.double() / back.double().norm()
        assert cosine(left, g.double() - (g.double() @ a) * a) == pytest.approx(1.0, abs=1e-6)


def test_recovery_by_hand() -> None:
    found = without_(torch.tensor([[3.0, 4.0], [7.0, 0.0], [0.0, -2.0]]), vector(-9.0, 0.0))
    assert found.tolist() == [[0.0, 5.0], [0.0, 0.0], [0.0, -2.0]]  # the second has nowhere else to go
    gradients = torch.ones(2, 2)
    assert torch.equal(without_(gradients, vector(0.0, 0.0)), gradients)


# Rounds --------------------------------------------------------------------------------------------------------


def leaving(slope: list[float]) -> Client:
    return Client([], [linear(slope)])


def method(**options: Any) -> FedOSD:
    options = {"rounds": 2, "recovery_rounds": 2, "lr": 0.1, "recovery_lr": 0.01, "decay": 0.5, **options}
    return FedOSD(**options)


def test_both_stages_by_hand_with_their_own_rates() -> None:
    """r keeps the first axis to itself; what is left of u is the second. Back to w0 leads along the second."""
    federation = QuadraticFederation(2, u=leaving([3.0, 4.0]), r=linear([2.0, 0.0]), s=linear([0.3, 0.4]))
    federation.clients["s"] = Client([linear([-1.0, 0.0])], [])
    states = walk(method(), federation, vector(0.0, 1.0), ["u"])
    assert states[1].w.tolist() == pytest.approx([0.0, 1.0 - 0.1 * 5])
    assert states[2].w.tolist() == pytest.approx([0.0, 0.5 - 0.05 * 5])
    assert (states[2].stage, states[2].started) == ("recovered", 2)
    # mean of (2, 0) and (-1, 0), neither of which has a part along w - w0 = (0, -0.75); decay goes on at 0.5²
    assert states[3].w.tolist() == pytest.approx([-0.0025 * 0.5, 0.25])
    assert states[4].record["lr"] == pytest.approx(0.01 * 0.5**3)
    assert [s.record["lr"] for s in states[1:3]] == [0.1, 0.05]


def test_those_who_leave_minimise_uce_and_those_who_stay_cross_entropy() -> None:
    spy = Spy(clients())
    osd = method(batch_size=4)
    state = osd.init(spy, blobs.trained(), Request(blobs.FORGET))
    osd.step(spy, state)
    for i, q in spy.asked:
        assert isinstance(q, PseudoGradient)
        assert q.loss == Loss("uce" if i in blobs.FORGET else "ce")
        assert (q.lr, q.epochs, q.batch_size, q.reference) == (0.1, 1, 4, None)
    assert spy.who() == {"0", "1", "2", "3"}


def test_on_networks_unlearning_is_orthogonal_and_recovery_never_leads_back() -> None:
    spy = Spy(clients())
    osd = method(rounds=3, recovery_rounds=4, batch_size=4, decay=1.0, lr=0.05, recovery_lr=0.02)
    state = osd.init(spy, blobs.trained(), Request(blobs.FORGET))
    while not state.done:
        spy.asked.clear()
        after = osd.step(spy, state)
        asked = {i: q for i, q in spy.asked if isinstance(q, PseudoGradient)}
        answers = {i: a.gradient for i, a in clients().ask(asked) if hasattr(a, "gradient")}
        step = after.w - state.w
        if state.stage == "unlearned":
            assert all(abs(cosine(step, answers[r])) < 1e-4 for r in state.retained)
            said = after.record["cosines"]
            assert said == {i: pytest.approx(-cosine(step, g), abs=1e-4) for i, g in answers.items()}
            mean = sum((answers[u] for u in state.forget), torch.zeros(99)) / len(state.forget)
            assert float(step.norm()) == pytest.approx(0.05 * float(mean.norm()), rel=1e-3)
            assert float(step @ mean) < 0
        else:
            assert set(asked) == set(state.retained)
            assert abs(cosine(step, state.w - state.w0)) < 1e-3
            assert (after.w - after.w0).norm() >= (state.w - state.w0).norm() * (1 - 1e-6)
        state = after


def test_a_stalled_round_says_why() -> None:
    stuck = QuadraticFederation(1, u=leaving([1.0]), r=linear([2.0]))
    state = walk(method(), stuck, vector(0.0), ["u"])[1]
    assert state.record["step"] is None
    assert "orthogonal" in state.record["note"]
    stuck.absent = {"r"}
    state = walk(method(), stuck, vector(0.0), ["u"])[1]
    assert "no usable answer" in state.record["note"]
    assert state.record["missing"] == {"r": "absent"}


def test_nobody_in_recovery() -> None:
    federation = QuadraticFederation(2, u=leaving([3.0, 4.0]), r=linear([2.0, 0.0]))
    osd = method()
    state = walk(osd, federation, vector(0.0, 1.0), ["u"])[2]
    assert state.stage == "recovered"
    federation.absent = {"r"}
    after = osd.step(federation, state)
    assert torch.equal(after.w, state.w)
    assert after.record["missing"] == {"r": "absent"}
