import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fupareto.pareto import Array, angle, guidance

losses_of_four = arrays(np.float64, 4, elements=st.floats(0.0, 20.0))
preferences = st.sampled_from([np.array(p) for p in ([0.0, 0, 1, 1], [1.0, 1, 1, 1], [0.0, 1, 1, 1], [0.5, 3, 0, 2])])


def autograd(losses: Array, preference: Array) -> tuple[float, Array]:
    f = torch.tensor(losses, requires_grad=True)
    p = torch.tensor(preference)
    value = torch.arccos(p @ f / p.norm() / f.norm())
    value.backward()  # type: ignore[no-untyped-call]
    assert f.grad is not None
    return float(value.detach()), f.grad.numpy()


@given(losses_of_four, preferences)
def test_is_the_gradient_of_the_angle(losses: Array, preference: Array) -> None:
    assume(np.linalg.norm(losses) > 1e-3 and angle(losses, preference) > 1e-3)
    value, gradient = autograd(losses, preference)
    assert angle(losses, preference) == pytest.approx(value, abs=1e-9)
    exact, unit = guidance(losses, preference, "exact"), guidance(losses, preference, "unit")
    assert exact is not None
    assert unit is not None
    size = float(np.linalg.norm(losses))
    np.testing.assert_allclose(exact, gradient, atol=1e-8 / size)
    np.testing.assert_allclose(unit, exact * size, atol=1e-12)
    assert np.linalg.norm(unit) == pytest.approx(1.0, abs=1e-12)


def test_chain_rule_through_a_model() -> None:
    """g_p = Σ h_i g_i is the gradient of the angle with respect to parameters, not just losses."""
    rng = np.random.default_rng(3)
    targets, preference = torch.tensor(rng.normal(size=(4, 6))), torch.tensor([0.0, 0.0, 1.0, 1.0]).double()
    w = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    losses = ((w - targets) ** 2).sum(dim=1)
    rows = torch.stack([torch.autograd.grad(loss, w, retain_graph=True)[0] for loss in losses]).numpy()
    value = torch.arccos(preference @ losses / preference.norm() / losses.norm())
    expected = torch.autograd.grad(value, w)[0].numpy()
    h = guidance(losses.detach().numpy(), preference.numpy(), "exact")
    assert h is not None
    np.testing.assert_allclose(h @ rows, expected, atol=1e-13)


@given(losses_of_four, preferences)
def test_following_it_turns_losses_towards_the_preference(losses: Array, preference: Array) -> None:
    h = guidance(losses, preference)
    assume(h is not None and angle(losses, preference) > 1e-2 and np.linalg.norm(losses) > 1e-2)
    assert h is not None
    small = 1e-4 * np.linalg.norm(losses)
    assert angle(losses - small * h, preference) < angle(losses, preference)


@given(losses_of_four, preferences, st.floats(0.01, 100.0))
def test_length_of_the_preference_does_not_matter(losses: Array, preference: Array, factor: float) -> None:
    assume(np.linalg.norm(losses) > 1e-3 and angle(losses, preference) > 1e-3)
    assert angle(losses, factor * preference) == pytest.approx(angle(losses, preference), abs=1e-12)
    ours, theirs = guidance(losses, factor * preference), guidance(losses, preference)
    assert ours is not None
    assert theirs is not None
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_zero_one_preference_with_many_clients_has_a_value() -> None:
    """Without normalising, p·F/‖F‖ is 5 here."""
    assert angle(np.ones(25), np.ones(25)) == pytest.approx(0.0, abs=1e-15)
    assert angle(np.append(1.0, np.zeros(24)), np.ones(25)) == pytest.approx(np.arccos(1 / 5), abs=1e-15)


def test_small_angles_keep_their_digits() -> None:
    assert angle(np.array([1.0, 1e-9]), np.array([1.0, 0.0])) == pytest.approx(1e-9, rel=1e-6, abs=0)


def test_is_undefined_where_losses_are_as_preferred() -> None:
    preference = np.array([0.0, 0.0, 1.0, 1.0])
    assert guidance(0.3 * preference, preference) is None
    assert guidance(-0.3 * preference, preference) is None
    assert guidance(np.array([0.0, 1e-8, 1.0, 1.0]), preference) is None
    assert guidance(np.array([0.0, 1e-5, 1.0, 1.0]), preference) is not None
    assert guidance(np.array([0.0, 1e-8, 1.0, 1.0]), 1e6 * preference) is None
    assert guidance(np.array([0.0, 1e-5, 1.0, 1.0]), 1e-6 * preference) is not None


def test_is_undefined_without_losses_or_preference() -> None:
    assert guidance(np.zeros(3), np.ones(3)) is None
    assert guidance(np.array([1e-13, 0.0, 0.0]), np.ones(3)) is None
    assert guidance(np.array([1e-11, 0.0, 0.0]), np.ones(3)) is not None
    assert guidance(np.array([1.0, 2.0, 3.0]), np.zeros(3)) is None
    assert angle(np.zeros(3), np.ones(3)) == 0.0
    assert angle(np.ones(3), np.zeros(3)) == 0.0


def test_a_single_client_is_always_as_preferred() -> None:
    assert guidance(np.array([0.7]), np.ones(1)) is None


@pytest.mark.parametrize("losses", [[1.0, np.nan], [np.inf, 1.0]])
def test_non_finite_losses_are_refused(losses: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        guidance(np.array(losses), np.ones(2))
    with pytest.raises(ValueError, match="finite"):
        angle(np.array(losses), np.ones(2))


def test_one_preference_per_client() -> None:
    with pytest.raises(ValueError, match="per client"):
        guidance(np.ones(3), np.ones(2))
