"""Differences of AUCs on the same samples, and the delta attack."""

import numpy as np
import pytest

from fupareto.audit.attacks.delta import scores
from fupareto.audit.attacks.membership import attack
from fupareto.audit.attacks.paired import against, difference
from fupareto.audit.attacks.roc import Scores, auc
from fupareto.tasks import signals
from fupareto.tasks.signals import Outputs, Signals


def drawn(rng: np.random.Generator, n: int, shift: float, other: float, shared: float) -> tuple[Scores, Scores]:
    """Scores of two models on the same samples, correlated as the share of their common part says."""
    common = [rng.normal(size=n) for _ in range(2)]

    def model(up: float) -> Scores:
        own = [shared * c + np.sqrt(1 - shared**2) * rng.normal(size=n) for c in common]
        return Scores(own[0] + up, own[1])

    return model(shift), model(other)


def expected(shift: float) -> float:
    from scipy.stats import norm

    return float(norm.cdf(shift / np.sqrt(2)))


@pytest.mark.parametrize("n", [12, 40, 150])
@pytest.mark.parametrize(
    ("shift", "other", "shared"), [(0.0, 0.0, 0.0), (0.0, 0.0, 0.9), (1.0, 0.0, 0.5), (3.0, 0.2, 0.3)]
)
def test_the_interval_holds_the_truth(n: int, shift: float, other: float, shared: float) -> None:
    rng = np.random.default_rng(0)
    truth, held = expected(shift) - expected(other), 0
    for _ in range(200):
        value, error = difference(*drawn(rng, n, shift, other, shared))
        held += abs(value - truth) <= 1.96 * error
    assert held >= 0.91 * 200


def test_what_two_models_share_makes_the_difference_sharper() -> None:
    rng = np.random.default_rng(0)
    alike, unlike = (difference(*drawn(rng, 200, 0.5, 0.5, shared))[1] for shared in (0.95, 0.0))
    assert alike < 0.6 * unlike


def test_a_difference_is_that_of_the_aucs() -> None:
    mine, theirs = drawn(np.random.default_rng(3), 30, 1.0, 0.2, 0.5)
    wanted = auc(mine.members, mine.nonmembers) - auc(theirs.members, theirs.nonmembers)
    assert difference(mine, theirs)[0] == pytest.approx(wanted)
    assert difference(mine, mine)[0] == 0


def outputs(seed: int, n: int, sure: float) -> Signals:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    return signals.of(Outputs(rng.normal(size=(n, 3)) + sure * np.eye(3)[labels], labels))


def test_results_carry_the_difference_from_the_baseline() -> None:
    leaky = {"a": attack(outputs(0, 60, 4.0), outputs(1, 60, 1.0), np.random.default_rng(0))}
    honest = {"a": attack(outputs(2, 60, 1.0), outputs(3, 60, 1.0), np.random.default_rng(0))}
    found = against(leaky, honest)["a"].results
    assert found["loss"]["against"]["difference"] > 0.2
    assert found["loss"]["against"]["auc"] == honest["a"].results["loss"]["auc"]
    assert "against" not in against(leaky, {})["a"].results["loss"]
    itself = against(honest, honest)["a"].results
    assert all(result["against"]["difference"] == 0 for result in itself.values())


def test_the_change_of_loss_is_higher_for_what_was_forgotten() -> None:
    before = np.array([0.1, 0.1, 0.2]), np.array([1.0, 1.1])
    assert auc(*scores(before, before)) == 0.5
    assert auc(*scores(before, (before[0] + 2.0, before[1]))) == 1.0
    assert auc(*scores(before, (before[0] - 2.0, before[1]))) == 0.0
