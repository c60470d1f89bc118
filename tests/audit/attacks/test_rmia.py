"""RMIA against its definition written out, and on networks of which it is known what they saw."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fupareto.audit.attacks import rmia, roc
from fupareto.audit.attacks.roc import Array, Interval
from fupareto.tasks import signals
from fupareto.tasks.signals import Indices

from ..networks import Mask, World, halves


def by_definition(
    target: Array, references: Array, z: Array, z_references: Array, gamma: float, a: float | None, own: Indices
) -> Array:
    def expected(p: Array) -> float:
        mean = float(np.mean(p))
        return mean if a is None else 0.5 * ((1 + a) * mean + (1 - a))

    scores = []
    for i, p in enumerate(target):
        ratios = [
            (p / expected(references[:, i])) / (q / expected(z_references[:, j]))
            for j, q in enumerate(z)
            if own[i] != j
        ]
        scores.append(np.mean(np.array(ratios) >= gamma * (1 - 1e-12)) if ratios else 0.5)
    return np.array(scores)


@given(
    st.integers(0, 10**6),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([None, 0.0, 0.3, 1.0]),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_agrees_with_the_definition(seed: int, gamma: float, a: float | None, models: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    target, references = rng.random(6) + 0.01, rng.random((models, 6)) + 0.01
    z, z_references = rng.random(k) + 0.01, rng.random((models, k)) + 0.01
    own = np.where(np.arange(6) < k, np.arange(6), -1)
    own[::2] = -1
    for i in np.flatnonzero(own >= 0):
        z[own[i]], z_references[:, own[i]] = target[i], references[:, i]
    expected = by_definition(target, references, z, z_references, gamma, a, own)
    np.testing.assert_allclose(rmia.scores(target, references, z, z_references, gamma, a, own), expected)


def test_a_sample_is_not_compared_with_itself() -> None:
    p, references = np.array([0.9, 0.5, 0.1]), np.full((2, 3), 0.5)
    assert rmia.scores(p, references, p, references).tolist() == pytest.approx([1, 2 / 3, 1 / 3])
    assert rmia.scores(p, references, p, references, own=np.arange(3)).tolist() == [1.0, 0.5, 0.0]
    alone = rmia.scores(p[:1], references[:, :1], p[:1], references[:, :1], own=np.array([0]))
    assert alone.tolist() == [0.5]  # nobody to compare with


@given(st.sampled_from([0.0, 1e-320, 1.0]), st.sampled_from([0.0, 1e-320, 1.0]), st.sampled_from([None, 0.0, 1.0]))
def test_certain_and_impossible_samples_are_scored(p: float, reference: float, a: float | None) -> None:
    z = np.array([0.0, 0.5, 1.0])
    found = rmia.scores(np.array([p]), np.array([[reference]]), z, z[None], gamma=2.0, a=a)
    assert np.isfinite(found).all()
    assert 0.0 <= found[0] <= 1.0


def test_offline_with_a_of_one_is_the_plain_mean() -> None:
    rng = np.random.default_rng(0)
    data = rng.random(20), rng.random((3, 20)), rng.random(30), rng.random((3, 30))
    np.testing.assert_array_equal(rmia.scores(*data, a=1.0), rmia.scores(*data))
    assert (rmia.scores(*data, a=0.2) != rmia.scores(*data)).any()


def test_references_of_another_shape_are_refused() -> None:
    p, references = np.ones(4), np.ones((2, 4))
    with pytest.raises(ValueError, match=r"references are \(models, 4\)"):
        rmia.scores(p, np.ones((2, 5)), p, references)
    with pytest.raises(ValueError, match=r"references are \(models, 4\)"):
        rmia.scores(p, references, p, np.ones((0, 4)))


def world(seed: int) -> World:
    """Half of the samples have a label that is pure chance: how hard a sample is says more than membership."""
    return halves(seed, models=17, n=400, steps=20)


def probabilities(found: World) -> Array:
    return np.array([signals.probability(outputs) for outputs in found.outputs])


def auc(scores: Array, seen: Mask) -> Interval:
    return roc.interval(scores[seen], scores[~seen])


def gains(scores: Callable[[World, Array], Array]) -> Array:
    """Return by how much an attack's AUC on the first network is above that of the loss, in six worlds."""
    found = []
    for seed in range(6):
        there = world(seed)
        seen, p = there.inside[0], probabilities(there)
        attack, loss = auc(scores(there, p), seen), auc(signals.low_loss(there.outputs[0]), seen)
        assert attack.low > 0.5
        found.append(attack.value - loss.value)
    return np.array(found)


@pytest.mark.parametrize(("models", "gain"), [(4, 0.06), (16, 0.08)])
def test_beats_the_loss_where_samples_differ_in_difficulty(models: int, gain: float) -> None:
    def online(_: World, p: Array) -> Array:
        few = p[1 : 1 + models]
        return rmia.scores(p[0], few, p[0], few, own=np.arange(400))

    found = gains(online)
    assert (found > 0).all()
    assert found.mean() > gain


def test_offline_beats_the_loss_too() -> None:
    """References that never saw the sample: the mean of those of the sixteen that did not."""

    def offline(there: World, p: Array) -> Array:
        out = np.ma.masked_array(p[1:], there.inside[1:]).mean(axis=0).filled(0.5)[None]
        return rmia.scores(p[0], out, p[0], out, a=0.6, own=np.arange(400))

    found = gains(offline)
    assert (found > 0).all()
    assert found.mean() > 0.06


def test_gamma_hardly_matters() -> None:
    found = world(0)
    p, seen, own = probabilities(found), found.inside[0], np.arange(400)
    values = [auc(rmia.scores(p[0], p[1:], p[0], p[1:], gamma, own=own), seen).value for gamma in (1.0, 1.2, 2.0)]
    assert max(values) - min(values) < 0.02


def test_a_model_that_saw_neither_side_gives_nothing_away() -> None:
    """Each of the networks as target, with samples that it did not see as if half had been members."""
    found, rng = world(3), np.random.default_rng(0)
    p, intervals = probabilities(found), []
    for target in np.repeat(np.arange(17), 8):
        unseen = rng.permutation(np.flatnonzero(~found.inside[target]))
        population, claimed = unseen[:100], unseen[100:]
        others = np.arange(17) != target
        z = p[target, population], p[others][:, population]
        members = rmia.scores(p[target, claimed], p[others][:, claimed], *z)
        nonmembers = rmia.scores(z[0], z[1], *z, own=np.arange(100))
        intervals.append(roc.interval(members, nonmembers))
    assert np.mean([i.low <= 0.5 <= i.high for i in intervals]) >= 0.9
    assert np.mean([i.value for i in intervals]) == pytest.approx(0.5, abs=0.015)
