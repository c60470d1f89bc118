"""AUC, its interval, and what else is said of scores, against other software, by hand and by simulation."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score, roc_curve

from fupareto.audit.attacks import roc
from fupareto.audit.attacks.roc import Array, Interval, Scores

UNKNOWN = Interval(0.5, 0.0, 1.0)


def array(*values: float) -> Array:
    return np.array(values, dtype=np.float64)


def sides(values: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[Array, Array]]:
    side = st.lists(values, min_size=1, max_size=30).map(lambda v: array(*v))
    return st.tuples(side, side)


TIED = sides(st.integers(-4, 4).map(float))
ANY = sides(st.floats())  # with infinities and NaN


@given(TIED)
def test_auc_agrees_with_scikit_learn(scores: tuple[Array, Array]) -> None:
    members, nonmembers = scores
    truth = np.repeat([1, 0], [len(members), len(nonmembers)])
    assert roc.auc(members, nonmembers) == pytest.approx(roc_auc_score(truth, np.concatenate(scores)), abs=1e-12)


@given(ANY)
def test_swapping_the_sides_mirrors_everything(scores: tuple[Array, Array]) -> None:
    members, nonmembers = scores
    there, back = roc.interval(members, nonmembers), roc.interval(nonmembers, members)
    assert there.value == pytest.approx(1 - back.value, abs=1e-12)
    assert there.low == pytest.approx(1 - back.high, abs=1e-9)


@given(TIED, st.sampled_from([np.exp, np.cbrt, lambda s: 1e300 * s, lambda s: 1e-300 * s]))
def test_only_the_order_counts(scores: tuple[Array, Array], change: Callable[[Array], Array]) -> None:
    members, nonmembers = scores
    assert roc.interval(change(members), change(nonmembers)) == roc.interval(members, nonmembers)
    assert roc.tpr_at(change(members), change(nonmembers), 0.1) == roc.tpr_at(members, nonmembers, 0.1)


@given(ANY, st.sampled_from([0, 2, 5]))
def test_whatever_the_scores_everything_is_a_number(scores: tuple[Array, Array], folds: int) -> None:
    found = roc.result(Scores(*scores, folds), np.random.default_rng(0))
    json.dumps(found, allow_nan=False)
    assert list(found) == ["auc", "low", "high", "tosses", "learned", "balanced_accuracy", "tpr_1", "tpr_01"]
    assert 0.0 <= found["low"] <= found["auc"] <= found["high"] <= 1.0
    assert 0.0 <= found["balanced_accuracy"] <= 1.0
    assert found["high"] - found["low"] > 0.0


@pytest.mark.parametrize("folds", [0, 5])
def test_other_levels_follow_from_the_result(folds: int) -> None:
    rng = np.random.default_rng(0)
    found = roc.result(Scores(rng.normal(size=30), rng.normal(size=30), folds), rng)
    assert roc.at_level(found, 0.95) == (found["low"], found["high"])
    low, high = roc.at_level(found, 0.999)
    assert low < found["low"] < found["high"] < high
    assert found["learned"] == (folds > 0)
    assert roc.at_level({"auc": 0.5, "low": 0.4, "high": 0.6}, 0.999) == (0.4, 0.6)  # of an earlier version


def test_infinite_scores_are_ordered_and_nan_takes_the_middle() -> None:
    inf, nan = np.inf, np.nan
    assert roc.auc(array(inf, 1), array(-inf, 0)) == 1.0
    assert roc.auc(array(-inf), array(inf)) == 0.0
    assert roc.auc(array(inf, inf), array(inf)) == 0.5
    assert roc.auc(array(nan, nan), array(nan)) == 0.5
    assert roc.auc(array(nan), array(1, 2, 3)) == 0.5


@pytest.mark.parametrize("scores", [(array(), array(1, 2)), (array(1, 2), array()), (array(), array())])
def test_with_nobody_on_one_side_nothing_is_known(scores: tuple[Array, Array]) -> None:
    assert roc.auc(*scores) == 0.5
    assert roc.interval(*scores) == UNKNOWN
    assert roc.result(Scores(*scores), np.random.default_rng(0)) == {
        "auc": 0.5,
        "low": 0.0,
        "high": 1.0,
        "tosses": 0.0,
        "learned": False,
        "balanced_accuracy": 0.5,
        "tpr_1": None,
        "tpr_01": None,
    }


@pytest.mark.parametrize(("n", "low"), [(1, 0.16), (3, 0.41), (20, 0.83), (1000, 0.996)])
def test_perfect_separation_is_not_certainty(n: int, low: float) -> None:
    found = roc.interval(np.linspace(1, 2, n), np.linspace(-2, -1, n))
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(low, abs=0.01)


def test_scores_that_say_nothing_leave_less_doubt_the_more_there_are() -> None:
    few, many = (roc.interval(np.zeros(n), np.zeros(n)) for n in (2, 200))
    assert few.value == many.value == 0.5
    assert few.low < 0.2
    assert 0.49 < many.low < 0.5 < many.high < 0.51


def tied(scores: Array) -> Array:
    return np.asarray(np.round(scores), np.float64)


@pytest.mark.parametrize("n", [5, 20, 60])
@pytest.mark.parametrize("truth", [0.5, 0.7, 0.95])
@pytest.mark.parametrize("width", [1.0, 3.0])
def test_intervals_hold_the_truth(n: int, truth: float, width: float) -> None:
    """Normal scores, members spread as widely as non-members or three times as much."""
    rng = np.random.default_rng([n, int(100 * truth), int(width)])
    centre = norm.ppf(truth) * np.sqrt(1 + width**2)
    found = [roc.interval(rng.normal(centre, width, n), rng.normal(0, 1, n)) for _ in range(600)]
    held = np.mean([i.low <= truth <= i.high for i in found])
    assert 0.91 <= held <= 0.99


@pytest.mark.parametrize("n", [20, 200])
def test_intervals_hold_the_truth_of_tied_scores(n: int) -> None:
    rng = np.random.default_rng(n)
    truth = roc.auc(
        tied(norm.ppf((np.arange(4000) + 0.5) / 4000) + 0.8), tied(norm.ppf((np.arange(4000) + 0.5) / 4000))
    )
    found = [roc.interval(tied(rng.normal(0.8, 1, n)), tied(rng.normal(0, 1, n))) for _ in range(600)]
    assert 0.93 <= np.mean([i.low <= truth <= i.high for i in found]) <= 0.98


@pytest.mark.parametrize(("n", "truths"), [(20, (0.5, 0.5, 0.5)), (10, (0.6, 0.8, 0.95, 0.99)), (60, (0.45, 0.7))])
def test_intervals_of_means_hold_the_truth(n: int, truths: tuple[float, ...]) -> None:
    rng = np.random.default_rng(n)
    held = []
    for _ in range(400):
        centres = [norm.ppf(t) * np.sqrt(2) for t in truths]
        found = roc.mean_interval([Scores(rng.normal(c, 1, n), rng.normal(0, 1, n)) for c in centres])
        held.append(found.low <= np.mean(truths) <= found.high)
    assert 0.92 <= np.mean(held) <= 0.99


def test_the_mean_is_over_clients_not_samples_and_without_those_who_have_none() -> None:
    rng = np.random.default_rng(0)
    large, small = Scores(rng.normal(1, 1, 300), rng.normal(0, 1, 300)), Scores(array(0, 1), array(2, 3))
    found = roc.mean_interval([large, small, Scores(array(), array(1.0))])
    assert found.value == pytest.approx((roc.auc(large.members, large.nonmembers) + 0) / 2)
    assert roc.mean_interval([]) == UNKNOWN
    assert roc.mean_interval([large]) == roc.interval(large.members, large.nonmembers)


def test_more_clients_narrow_the_mean() -> None:
    rng = np.random.default_rng(1)
    clients = [Scores(rng.normal(0, 1, 40), rng.normal(0, 1, 40)) for _ in range(16)]
    one, all_ = roc.mean_interval(clients[:1]), roc.mean_interval(clients)
    assert (all_.high - all_.low) == pytest.approx((one.high - one.low) / 4, rel=0.15)


def test_a_table_of_wins_is_as_good_as_scores() -> None:
    rng = np.random.default_rng(2)
    members, nonmembers = rng.normal(0.5, 1, 12), rng.normal(0, 1, 9)
    wins = (members[:, None] > nonmembers).astype(np.float64)
    assert roc.interval_of_wins(wins) == roc.interval(members, nonmembers)
    assert roc.interval_of_wins(np.empty((0, 0))) == UNKNOWN


def test_what_was_learned_is_less_certain_but_for_clear_cases() -> None:
    rng = np.random.default_rng(3)
    guess, nothing = rng.normal(0, 1, 100), rng.normal(0, 1, 100)
    plain, learned = (roc.mean_interval([Scores(guess, nothing, folds)]) for folds in (0, 5))
    assert learned.value == plain.value
    assert (learned.high - learned.low) == pytest.approx(1.5 * (plain.high - plain.low), rel=0.03)
    clear = [roc.mean_interval([Scores(guess + 99, nothing, folds)]) for folds in (0, 5)]
    assert clear[0].low - clear[1].low < 0.01


def test_learning_the_wrong_way_round_is_bad_luck() -> None:
    low, high = np.zeros(50), np.ones(50)
    assert roc.interval(low, high).high < 0.1
    assert roc.mean_interval([Scores(low, high, folds=5)]).high == 0.5


def test_tpr_by_hand() -> None:
    nonmembers = np.arange(10.0)  # 0 to 9
    members = array(8.5, 9.5, 9.0, 3.0)
    assert roc.tpr_at(members, nonmembers, 0.1) == 0.75  # above 8: one of ten accused
    assert roc.tpr_at(members, nonmembers, 0.2) == 0.75  # above 7
    assert roc.tpr_at(members, nonmembers, 0.7) == 1.0
    assert roc.tpr_at(members, nonmembers, 1.0) == 1.0
    assert roc.tpr_at(members, nonmembers, 0.09) is None
    assert roc.tpr_at(array(), nonmembers, 0.5) is None


def test_tpr_never_accuses_more_than_it_says_when_scores_tie() -> None:
    assert roc.tpr_at(np.ones(7), np.ones(100), 0.01) == 0.0
    assert roc.tpr_at(np.ones(7), np.append(np.ones(2), np.zeros(98)), 0.01) == 0.0
    assert roc.tpr_at(np.ones(7), np.append(np.ones(1), np.zeros(99)), 0.01) == 1.0


@pytest.mark.parametrize(("fpr", "enough"), [(0.01, 100), (0.001, 1000)])
def test_too_few_nonmembers_show_no_small_rate(fpr: float, enough: int) -> None:
    assert roc.tpr_at(np.ones(5), np.zeros(enough - 1), fpr) is None
    assert roc.tpr_at(np.ones(5), np.zeros(enough), fpr) == 1.0


@given(sides(st.integers(-9, 9).map(float)), st.sampled_from([0.1, 0.25, 0.5]))
def test_tpr_agrees_with_the_curve_of_scikit_learn(scores: tuple[Array, Array], fpr: float) -> None:
    members, nonmembers = scores
    found = roc.tpr_at(members, nonmembers, fpr)
    if found is not None:
        truth = np.repeat([1, 0], [len(members), len(nonmembers)])
        rates, hits, _ = roc_curve(truth, np.concatenate(scores), drop_intermediate=False)
        assert found == pytest.approx(hits[rates <= fpr + 1e-9].max())


def test_balanced_accuracy_is_not_optimistic() -> None:
    rng = np.random.default_rng(0)
    nothing = [roc.balanced_accuracy(rng.normal(size=50), rng.normal(size=50), rng) for _ in range(600)]
    assert abs(np.mean(nothing) - 0.5) < 4 * np.std(nothing) / np.sqrt(600)
    assert np.std(nothing) / np.sqrt(600) < 0.005


def test_balanced_accuracy_finds_threshold_and_sign() -> None:
    rng = np.random.default_rng(0)
    assert roc.balanced_accuracy(np.linspace(90, 99, 20), np.linspace(0, 50, 500), rng) == 1.0
    assert roc.balanced_accuracy(np.linspace(-99, -90, 20), np.linspace(0, 50, 500), rng) == 1.0
    assert roc.balanced_accuracy(np.zeros(20), np.zeros(20), rng) == 0.5
    assert roc.balanced_accuracy(array(5), array(1, 2, 3), rng) == 0.5
    best = norm.cdf(0.75)  # of normal scores 1.5 apart
    assert roc.balanced_accuracy(rng.normal(1.5, 1, 4000), rng.normal(0, 1, 4000), rng) == pytest.approx(best, abs=0.02)


def test_a_learned_attack_is_not_given_a_second_choice() -> None:
    rng = np.random.default_rng(0)
    ranks = (np.arange(40) + 0.5) / 40
    right, wrong = Scores(ranks[20:], ranks[:20], folds=2), Scores(ranks[:20], ranks[20:], folds=2)
    assert roc.result(right, rng)["balanced_accuracy"] == 1.0
    assert roc.result(wrong, rng)["balanced_accuracy"] == 0.0
    assert roc.result(Scores(ranks[10:], ranks[:10], folds=2), rng)["balanced_accuracy"] == 1.0
