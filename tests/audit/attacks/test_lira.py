"""LiRA against its formula, and both of its uses on networks of which it is known what they saw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fupareto.audit.attacks import lira, roc
from fupareto.audit.attacks.roc import Array, Interval
from fupareto.tasks import signals

from ..networks import Mask, World, halves, samples, train


def test_agrees_with_the_formula_for_many_models() -> None:
    rng = np.random.default_rng(0)
    shadows = rng.normal(size=(300, 5)) * [1, 2, 3, 4, 5] + 7
    inside = rng.random((300, 5)) < 0.5
    target = rng.normal(size=5) + 7
    expected = []
    for i in range(5):
        kinds = [shadows[inside[:, i] == kind, i] for kind in (True, False)]
        logs = [norm.logpdf(target[i], v.mean(), v.std(ddof=1) * np.sqrt(1 + 1 / len(v))) for v in kinds]
        expected.append(logs[0] - logs[1])
    np.testing.assert_allclose(lira.scores(target, shadows, inside), expected, rtol=1e-9)


def test_few_models_share_one_variance() -> None:
    shadows = np.array([[1.0, 10.0], [3.0, 12.0], [0.0, 0.0], [0.0, 8.0]])
    inside = np.array([[True, True], [True, True], [False, False], [False, False]])
    inner, outer = 2.0, 16.0  # (2 + 2) / 2 and (0 + 32) / 2, around each sample's own mean
    target = np.array([2.5, 6.0])
    expected = norm.logpdf(target, [2, 11], np.sqrt(1.5 * inner)) - norm.logpdf(target, [0, 4], np.sqrt(1.5 * outer))
    np.testing.assert_allclose(lira.scores(target, shadows, inside), expected)


def test_one_model_on_a_side_is_enough_and_none_is_neutral() -> None:
    rng = np.random.default_rng(0)
    shadows = rng.normal(size=(6, 4))
    inside = np.zeros((6, 4), bool)
    inside[:3, 0] = inside[0, 1] = inside[:, 2] = True  # three, one, all, none
    shadows[inside] += 5
    found = lira.scores(np.full(4, 5.0), shadows, inside)
    assert np.isfinite(found).all()
    assert (found[:2] > 0).all()
    assert found[2:].tolist() == [0.0, 0.0]


@given(st.integers(0, 10**6), st.integers(0, 4), st.sampled_from([0.0, 1e-200, 1.0, 1e30]))
def test_scores_are_finite(seed: int, models: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    found = lira.scores(scale * rng.normal(size=3), scale * rng.normal(size=(models, 3)), rng.random((models, 3)) < 0.5)
    assert np.isfinite(found).all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="not \\(n,\\), \\(models, n\\), \\(models, n\\)"):
        lira.scores(np.ones(3), np.ones((2, 4)), np.ones((2, 4), bool))
    with pytest.raises(ValueError, match="of the same n samples"):
        lira.told_apart(np.ones((4, 3)), np.ones((4, 2)))


def world(seed: int) -> World:
    """Half of the samples have a label that is pure chance: how hard a sample is says more than membership."""
    return halves(seed, models=17, n=400, steps=20)


def phi(found: World) -> Array:
    return np.array([signals.scaled(outputs) for outputs in found.outputs])


def auc(scores: Array, seen: Mask) -> Interval:
    return roc.interval(scores[seen], scores[~seen])


def test_beats_the_loss_where_samples_differ_in_difficulty() -> None:
    gains = []
    for seed in range(6):
        found = world(seed)
        seen, values = found.inside[0], phi(found)
        loss = auc(signals.low_loss(found.outputs[0]), seen)
        likelihood = auc(lira.scores(values[0], values[1:], found.inside[1:]), seen)
        assert likelihood.low > 0.5
        gains.append(likelihood.value - loss.value)
    assert min(gains) > 0
    assert np.mean(gains) > 0.08


def test_a_model_that_saw_neither_side_gives_nothing_away() -> None:
    found, rng, intervals = world(3), np.random.default_rng(0), []
    values = phi(found)
    for target in np.repeat(np.arange(17), 8):
        unseen = rng.permutation(np.flatnonzero(~found.inside[target]))
        others = np.arange(17) != target
        scores = lira.scores(values[target, unseen], values[others][:, unseen], found.inside[others][:, unseen])
        intervals.append(roc.interval(scores[:100], scores[100:]))
    assert np.mean([i.low <= 0.5 <= i.high for i in intervals]) >= 0.9
    assert np.mean([i.value for i in intervals]) == pytest.approx(0.5, abs=0.015)


def pair_by_pair(with_: Array, without: Array) -> Array:
    """Return who wins when models i and j are left out, as the docstring says it."""
    wins = np.empty((len(with_), len(without)))
    for i, member in enumerate(with_):
        for j, stranger in enumerate(without):
            rest = np.delete(with_, i, axis=0), np.delete(without, j, axis=0)
            means = [r.mean(axis=0) for r in rest]
            spreads = [np.sqrt(r.var(axis=0, ddof=1).mean()) for r in rest]
            statistic = [
                np.mean(norm.logpdf(m, means[0], spreads[0]) - norm.logpdf(m, means[1], spreads[1]))
                for m in (member, stranger)
            ]
            wins[i, j] = statistic[0] > statistic[1]
    return wins


@pytest.mark.parametrize(("with_", "without", "n"), [(3, 3, 1), (5, 4, 7), (4, 9, 30)])
def test_told_apart_agrees_with_leaving_out_pairs(with_: int, without: int, n: int) -> None:
    rng = np.random.default_rng(n)
    groups = rng.normal(0.3, 1.2, (with_, n)) + 9, rng.normal(0, 1, (without, n)) + 9
    expected = roc.interval_of_wins(pair_by_pair(*groups), folds=min(with_, without))
    found = lira.told_apart(*groups)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def models(k: int, n: int, common: float, rng: np.random.Generator) -> Array:
    """Models whose values vary by themselves and, as far as ``common`` goes, all samples together."""
    fixed = np.random.default_rng(n)
    mean, shared = 3 * fixed.normal(size=n), fixed.normal(size=n)
    own = rng.normal(size=(k, n)) * (0.5 + fixed.random(n))
    return np.asarray(mean + own + common * rng.normal(size=(k, 1)) * shared, np.float64)


@pytest.mark.parametrize("k", [4, 8, 24])
@pytest.mark.parametrize(("n", "common"), [(1, 0.0), (60, 0.0), (60, 1.0)])
def test_models_of_one_kind_are_not_told_apart(k: int, n: int, common: float) -> None:
    rng = np.random.default_rng([k, n, int(common)])
    found = [lira.told_apart(models(k, n, common, rng), models(k, n, common, rng)) for _ in range(300)]
    values = [interval.value for interval in found]
    assert abs(np.mean(values) - 0.5) < 3.5 * np.std(values) / np.sqrt(300)
    assert np.mean([interval.low > 0.5 for interval in found]) <= 0.05


@pytest.mark.parametrize("k", [8, 16])
def test_models_of_two_kinds_are_told_apart(k: int) -> None:
    rng = np.random.default_rng(k)
    found = [lira.told_apart(models(k, 60, 0.5, rng) + 0.8, models(k, 60, 0.5, rng)) for _ in range(50)]
    assert np.mean([interval.low > 0.5 for interval in found]) > 0.9
    wider = [lira.told_apart(1.5 * rng.normal(size=(k, 60)), rng.normal(size=(k, 60))) for _ in range(50)]
    assert np.mean([interval.low > 0.5 for interval in wider]) > 0.9  # by their spread alone


@pytest.mark.parametrize("sizes", [(2, 9), (9, 2), (0, 0)])
def test_too_few_models_leave_everything_possible(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    assert lira.told_apart(rng.normal(size=(sizes[0], 4)), rng.normal(size=(sizes[1], 4))) == Interval(0.5, 0.0, 1.0)


def test_models_that_do_not_differ_at_all_are_a_draw() -> None:
    assert lira.told_apart(np.ones((5, 3)), np.ones((5, 3))).value == 0.5


@pytest.mark.parametrize(("seen", "expected"), [(True, True), (False, False)])
def test_networks_with_and_without_a_client(seen: bool, expected: bool) -> None:
    """Ten networks that trained with the first twenty samples, or not, against ten that certainly did not."""
    rng = np.random.default_rng(0)
    x, y = samples(240, rng, hard=0.5)
    inside = rng.random((20, 240)) < 0.7
    inside[:10, :20], inside[10:, :20] = seen, False
    values = phi(train(x, y, inside, seed=0, steps=20))[:, :20]
    found = lira.told_apart(values[:10], values[10:])
    assert (found.low > 0.5) == expected
    assert found.high >= 0.5
