"""Attacks that need one model only, on networks of which it is known what they saw."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fupareto.audit.attacks import membership, roc
from fupareto.audit.attacks.membership import Attacked, summary
from fupareto.audit.attacks.roc import Scores
from fupareto.tasks import signals
from fupareto.tasks.signals import Outputs

from ..networks import halves

NAMES = ["confidence", "loss", "margin", "entropy"]


def attack(member: Outputs, other: Outputs, rng: np.random.Generator, balance: bool = True) -> Attacked:
    return membership.attack(signals.of(member), signals.of(other), rng, balance)


def learned(member: Outputs, other: Outputs, rng: np.random.Generator) -> Scores:
    return membership.learned(signals.of(member), signals.of(other), rng)


def answers(n: int, rng: np.random.Generator, sure: float = 1.0) -> Outputs:
    """Made-up logits of ten classes."""
    logits = rng.normal(size=(n, 10))
    labels = rng.integers(10, size=n)
    logits[np.arange(n), labels] += sure * rng.exponential(4.0, size=n)
    return Outputs(logits, labels)


@pytest.mark.parametrize("model", range(3))
def test_a_model_that_learned_by_heart_gives_its_members_away(model: int) -> None:
    world = halves(seed=1, models=12, n=400, steps=120)
    seen = world.inside[model]
    found = attack(world.of(model, seen), world.of(model, ~seen), np.random.default_rng(model))
    for name in NAMES:
        assert found.results[name]["auc"] > 0.6, name
        assert found.results[name]["low"] > 0.5, name
        assert found.results[name]["balanced_accuracy"] > 0.55, name
    assert found.results["loss"]["auc"] > 0.75
    assert found.results["loss"]["tpr_1"] is not None
    assert found.results["loss"]["tpr_01"] is None


def test_a_model_that_saw_neither_side_gives_nothing_away() -> None:
    """Twelve networks, each attacked with samples that it never saw as if half of them had been members."""
    world = halves(seed=1, models=12, n=400, steps=120)
    rng = np.random.default_rng(0)
    found = []
    for model, outputs in enumerate(world.outputs):
        for _ in range(10):
            unseen = rng.permutation(np.flatnonzero(~world.inside[model]))
            found.append(attack(outputs.take(unseen[:100]), outputs.take(unseen[100:]), rng))
    for name in NAMES:
        results = [a.results[name] for a in found]
        assert np.mean([r["low"] <= 0.5 <= r["high"] for r in results]) >= 0.9, name
        assert np.mean([r["auc"] for r in results]) == pytest.approx(0.5, abs=0.015), name
        assert np.mean([r["balanced_accuracy"] for r in results]) == pytest.approx(0.5, abs=0.015), name


@pytest.mark.parametrize(("members", "others", "features"), [(20, 20, 3), (8, 60, 10), (5, 5, 40), (300, 200, 10)])
@pytest.mark.parametrize("apart", [0.0, 1.0, 30.0])
def test_the_attacker_is_the_logistic_regression_of_scikit_learn(
    members: int, others: int, features: int, apart: float
) -> None:
    rng = np.random.default_rng(features)
    scales = 10.0 ** rng.integers(-6, 6, size=features)
    seen = [(rng.normal(size=(n, features)) + shift) * scales + 5 for n, shift in ((members, apart), (others, 0.0))]
    unseen = rng.normal(size=(15, features)) * scales + 5
    truth = np.repeat([1, 0], [members, others])
    regression = LogisticRegression(class_weight="balanced", tol=1e-10, max_iter=10_000)
    expected = make_pipeline(StandardScaler(), regression).fit(np.concatenate(seen), truth).decision_function(unseen)
    np.testing.assert_allclose(membership._judge(seen, unseen), expected, rtol=1e-4, atol=1e-4)


def test_inputs_that_do_not_vary_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    seen = [np.column_stack([rng.normal(size=9) + shift, np.full(9, 0.1)]) for shift in (1.0, 0.0)]
    unseen = np.array([[0.0, 0.1], [0.0, 7.0]])
    with_constant, without = membership._judge(seen, unseen), membership._judge([s[:, :1] for s in seen], unseen[:, :1])
    np.testing.assert_allclose(with_constant, without, atol=1e-9)


@pytest.mark.parametrize("n", [12, 30])
def test_the_learned_attack_on_nothing_is_at_one_half(n: int) -> None:
    """Raw scores compared across parts would be at .48 here."""
    rng = np.random.default_rng(n)
    found = [learned(answers(n, rng), answers(n, rng), rng) for _ in range(400)]
    values = [roc.auc(scores.members, scores.nonmembers) for scores in found]
    assert abs(np.mean(values) - 0.5) < 3 * np.std(values) / np.sqrt(len(values))
    alarms = [roc.mean_interval([scores]).low > 0.5 for scores in found]
    assert np.mean(alarms) <= 0.05


def test_scores_are_ranks_within_parts() -> None:
    rng = np.random.default_rng(0)
    scores = learned(answers(40, rng), answers(40, rng), rng)
    assert scores.folds == 5
    every, counts = np.unique(np.concatenate([scores.members, scores.nonmembers]), return_counts=True)
    np.testing.assert_allclose(every, (np.arange(16) + 0.5) / 16)
    assert (counts == 5).all()


def test_the_learned_attack_sees_through_a_model_that_is_sure_of_everything() -> None:
    """Most probabilities are 1 or 0 to the last digit; how sure the model is still differs."""
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        members, others = (Outputs(1e3 * a.logits, a.labels) for a in (answers(80, rng, 3.0), answers(80, rng, 1.0)))
        assert (signals.confidences(members)[:, 0] == 1.0).mean() > 0.95
        results = attack(members, others, rng).results
        found.append([results["confidence"]["auc"], results["margin"]["auc"]])
    learns, knows = np.mean(found, axis=0)
    assert learns > 0.7
    assert learns > knows - 0.02  # who was told the right score beforehand


def test_the_learned_attack_finds_members_that_the_model_is_less_sure_of() -> None:
    """As after unlearning by ascent: fixed scores point the wrong way there."""
    rng = np.random.default_rng(0)
    found = attack(answers(100, rng, 0.3), answers(100, rng, 1.5), rng)
    assert found.results["entropy"]["high"] < 0.5
    assert found.results["confidence"]["low"] > 0.5


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e5, 1e200, np.nan, np.inf])
def test_degenerate_models_are_answered(scale: float) -> None:
    rng = np.random.default_rng(0)
    with np.errstate(invalid="ignore"):
        member, other = (Outputs(scale * a.logits, a.labels) for a in (answers(25, rng), answers(25, rng)))
    found = attack(member, other, rng)
    json.dumps(found.to_json(), allow_nan=False)
    assert all(0 <= r["low"] <= r["auc"] <= r["high"] <= 1 for r in found.results.values())
    if scale == 0.0 or np.isnan(scale):
        assert all(r["auc"] == 0.5 for r in found.results.values())


@pytest.mark.parametrize(("n", "folds"), [(5, 2), (6, 3), (9, 4), (10, 5), (50, 5)])
def test_few_samples_are_split_less(n: int, folds: int) -> None:
    rng = np.random.default_rng(0)
    assert learned(answers(n, rng), answers(n + 3, rng), rng).folds == folds


@pytest.mark.parametrize(("members", "nonmembers"), [(4, 100), (100, 4), (1, 1), (0, 10), (0, 0)])
def test_too_few_samples_to_learn_from_leave_everything_possible(members: int, nonmembers: int) -> None:
    rng = np.random.default_rng(0)
    found = attack(answers(members, rng), answers(nonmembers, rng), rng)
    nothing: dict[str, object] = {"auc": 0.5, "low": 0.0, "high": 1.0, "tosses": 0.0, "learned": False}
    nothing |= {"balanced_accuracy": 0.5, "tpr_1": None, "tpr_01": None}
    assert found.to_json()["attacks"]["confidence"] == nothing
    assert list(found.results) == NAMES
    assert found.to_json()["members"] == found.to_json()["nonmembers"] == min(members, nonmembers)
    if not min(members, nonmembers):
        assert all(result == nothing for result in found.to_json()["attacks"].values())


def test_the_larger_side_is_cut_at_random_unless_told_otherwise() -> None:
    rng = np.random.default_rng(0)
    members, others = answers(60, rng), answers(20, rng)
    cut, again, whole = (
        attack(members, others, np.random.default_rng(s), b) for s, b in [(1, True), (2, True), (1, False)]
    )
    assert (len(cut.members), len(cut.nonmembers)) == (20, 20)
    assert len(set(cut.members.tolist())) == 20
    assert set(cut.members.tolist()) != set(again.members.tolist())
    assert cut.nonmembers.tolist() == list(range(20))
    np.testing.assert_array_equal(cut.scores["loss"].members, signals.low_loss(members)[cut.members])
    assert (len(whole.members), len(whole.nonmembers)) == (60, 20)
    widths = [a.results["loss"]["high"] - a.results["loss"]["low"] for a in (cut, whole)]
    assert widths[1] < 0.9 * widths[0]


def test_the_same_seed_gives_the_same_answer() -> None:
    sides = answers(30, np.random.default_rng(0)), answers(30, np.random.default_rng(1))
    first, second = (attack(*sides, np.random.default_rng(5)).to_json() for _ in range(2))
    assert first == second


def clients() -> dict[str, Attacked]:
    rng = np.random.default_rng(0)
    return {
        "3": attack(answers(30, rng, 2.0), answers(12, rng), rng),
        "7": attack(answers(15, rng, 2.0), answers(15, rng), rng),
        "tiny": attack(answers(3, rng), answers(3, rng), rng),
    }


def test_other_attacks_are_added_by_name() -> None:
    before = clients()["3"]
    rng = np.random.default_rng(0)
    after = before.plus("rmia", np.arange(30.0) + 100, np.zeros(12), rng)
    assert list(before.results) == NAMES
    assert list(after.results) == [*NAMES, "rmia"]
    assert after.scores["rmia"].members.tolist() == (before.members + 100).tolist()  # the same samples as the others
    assert after.results["rmia"]["auc"] == 1.0
    assert after.to_json()["members"] == 12


def test_summary_is_a_stage_of_the_audit() -> None:
    found = clients()
    rng = np.random.default_rng(0)
    found["7"] = found["7"].plus("rmia", np.ones(15), np.zeros(15), rng)
    stage = summary(found)
    json.dumps(stage, allow_nan=False)
    assert list(stage) == ["clients", "mean"]
    assert list(stage["clients"]) == ["3", "7", "tiny"]
    assert stage["clients"]["3"] == found["3"].to_json()
    assert list(stage["mean"]) == [*NAMES, "rmia"]
    assert all(list(mean) == ["auc", "low", "high", "tosses", "learned"] for mean in stage["mean"].values())
    each = [found[i].results["loss"]["auc"] for i in ("3", "7", "tiny")]
    assert stage["mean"]["loss"]["auc"] == pytest.approx(np.mean(each))
    two = [found[i].results["confidence"]["auc"] for i in ("3", "7")]
    assert stage["mean"]["confidence"]["auc"] == pytest.approx(np.mean(two))  # nothing could be tried on the third
    assert stage["mean"]["rmia"]["auc"] == 1.0
    assert summary({}) == {"clients": {}, "mean": {}}


def test_only_numpy_is_loaded() -> None:
    code = f"import sys, {membership.__name__}; print(*[m for m in ('sklearn', 'scipy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
