"""ROC statistics of membership scores: AUC with its interval, balanced accuracy, TPR at a small FPR.

A score is a number per sample, higher for "was trained on". Only the order of scores counts, so infinite ones are
valid; a score that is not a number takes the place of the median one. With no samples on one side every measure is
that of guessing: 0.5, with an interval from 0 to 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fupareto.audit.intervals import LEVEL, Ends, wilson

Array = NDArray[np.float64]
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Interval:
    """An AUC and its 95 % interval.

    ``tosses`` is how many tosses of a coin have its variance, from which ``at_level`` gives intervals of other levels.
    ``learned`` says that the attack was trained to tell members: its AUC is below 0.5 by chance only. The AUC of a
    score with a fixed sign may be below 0.5 for a reason, and then tells members too.
    """

    value: float
    low: float
    high: float
    tosses: float = 0.0
    learned: bool = False

    @classmethod
    def of(cls, value: float, tosses: float, learned: bool, level: float = LEVEL) -> "Interval":
        """Return Wilson's interval; that of a learned attack always reaches 0.5."""
        low, high = wilson(value, tosses, level)
        return cls(value, low, max(high, 0.5) if learned else high, tosses, learned)

    def to_json(self) -> dict[str, Any]:
        """Return it under the names that audit.json has for it."""
        return {
            "auc": self.value,
            "low": self.low,
            "high": self.high,
            "tosses": self.tosses,
            "learned": self.learned,
        }


def at_level(result: Mapping[str, Any], level: float) -> Ends:
    """Return the interval of a result of audit.json at another level; as it is, if it does not say its ``tosses``."""
    if "tosses" not in result:
        return result["low"], result["high"]
    found = Interval.of(result["auc"], result["tosses"], result["learned"], level)
    return found.low, found.high


@dataclass(frozen=True)
class Scores:
    """One attack's scores of one client's samples, higher for members.

    ``folds`` is 0 when the scores were fixed before anybody saw who is a member, and else in how many parts an
    attack was held out of what it learned from: the parts share most of their teachers, and err together.
    """

    members: Array
    nonmembers: Array
    folds: int = 0


def auc(members: Array, nonmembers: Array) -> float:
    """Return the chance that a member scores above a non-member, ties at half (Mann and Whitney, 1947).

    >>> auc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    return float(placements(members, nonmembers)[0].mean()) if len(members) and len(nonmembers) else 0.5


def tpr_at(members: Array, nonmembers: Array, fpr: float) -> float | None:
    """Return the share of members found at a false positive rate of at most ``fpr``.

    None where there are fewer than ``1/fpr`` non-members: a single false positive would exceed the rate.
    """
    accused = math.floor(fpr * len(nonmembers) + 1e-9)
    if accused < 1 or not len(members):
        return None
    found, wrong = _known(members, nonmembers)
    return float(np.mean(found > np.sort(wrong)[-accused - 1])) if accused < len(wrong) else 1.0


def balanced_accuracy(members: Array, nonmembers: Array, rng: np.random.Generator) -> float:
    """Return the mean of the shares of members and of non-members that a threshold puts on the right side.

    The best threshold for the very samples that it is measured on is too good by chance: 0.58 on average for 50 and 50
    samples with scores that mean nothing. So threshold and sign are chosen on one half and measured on the
    other, both ways.
    """
    if min(len(members), len(nonmembers)) < 2:
        return 0.5
    halves = [np.array_split(rng.permutation(side), 2) for side in _known(members, nonmembers)]
    gains = []
    for here, there in ((0, 1), (1, 0)):
        threshold, sign = _best(halves[0][here], halves[1][here])
        gains.append(sign * (_above(halves[0][there], threshold) - _above(halves[1][there], threshold)).item())
    return float(0.5 + np.mean(gains) / 2)


def interval(members: Array, nonmembers: Array) -> Interval:
    """Return the AUC with its 95 % interval; see ``mean_interval`` for how."""
    return mean_interval([Scores(members, nonmembers)])


def mean_interval(clients: Sequence[Scores]) -> Interval:
    """Return the mean AUC over clients with its 95 % interval; clients without samples on both sides are left out.

    The AUC is a mean of placements: for every member the share of non-members below it, and the other way
    round. Their variances give that of the AUC, whatever the scores' distribution (DeLong, DeLong and
    Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating characteristic curves",
    1988), and the mean's over independent clients. The interval is Wilson's ("Probable inference", 1927) for as
    many tosses of a coin as have this variance: within 0 and 1, and leaning to the middle.

    Few samples often separate perfectly and then have no variance at all, from which bootstrap and DeLong both
    conclude that they are certain: with five samples a side and a true AUC of 0.95 their intervals held it in 31
    to 71 of 100 simulations. One more placement of 0.5 on either side stands for the sample not seen yet; with it
    they did in 93 to 98 of 100, for 5 to 200 samples a side and normal, exponential, tied and two-humped scores.
    No interval is narrower than for as many tosses as there are pairs.

    For attacks that learned from these samples (``folds``), see ``_Spread``.
    """
    parts = [(c, *placements(c.members, c.nonmembers)) for c in clients if len(c.members) and len(c.nonmembers)]
    return _wilson([_Spread.of(above, below, c.folds) for c, above, below in parts])


def interval_of_wins(wins: Array, folds: int = 0) -> Interval:
    """Return the same interval from a (members, non-members) table that says who scored higher: 1, 0, or a half."""
    return _wilson([_Spread.of(wins.mean(axis=1), wins.mean(axis=0), folds)] if wins.size else [])


def result(scores: Scores, rng: np.random.Generator) -> dict[str, Any]:
    """Return the results of one attack on one client, as audit.json has them."""
    sides = scores.members, scores.nonmembers
    return {
        **mean_interval([scores]).to_json(),
        "balanced_accuracy": _own_accuracy(*sides) if scores.folds else balanced_accuracy(*sides, rng),
        "tpr_1": tpr_at(*sides, 0.01),
        "tpr_01": tpr_at(*sides, 0.001),
    }


def placements(members: Array, nonmembers: Array) -> tuple[Array, Array]:
    """Return for every member the share of non-members below it, for every non-member that of members above it."""
    high, low = _known(members, nonmembers)
    return share_below(high, low), 1.0 - share_below(low, high)


@dataclass(frozen=True)
class _Spread:
    """One client's contribution to an interval.

    An attack that learned which way to look, on k - 1 of k parts in turn, has an AUC that varies by up to 1.5
    times as much as its placements say: all parts learned from nearly the same samples, and find the same chance
    pattern. Such intervals held 0.5 in only 77 to 90 of 100 simulations without any leak. Nadeau and Bengio
    ("Inference for the generalization error", 2003) therefore take the variance ``1 + k/(k-1)`` times. Where there
    is much to find all parts find it, and the excess goes, so it is weighted by ``4 A (1 - A)``: a rule of ours.
    With it 0 to 4 of 100 intervals were above 0.5 without a leak, and 88 to 100 held the truth of weak and strong
    attacks. The other side is not a matter of chance: no upper end is below 0.5, see ``Interval.of``.
    """

    value: float
    shrunk: float  # the AUC with one more placement of 0.5 on either side
    variance: float
    pairs: int
    learned: bool

    @classmethod
    def of(cls, above: Array, below: Array, folds: int) -> "_Spread":
        more = [np.append(side, 0.5) for side in (above, below)]
        shrunk = float(np.mean([side.mean() for side in more]))
        variance = sum(float(side.var(ddof=1)) / (len(side) - 1) for side in more)
        inflation = 1 + folds / (folds - 1) * 4 * shrunk * (1 - shrunk) if folds else 1.0
        return cls(float(above.mean()), shrunk, inflation * variance, len(above) * len(below), folds > 0)


def _wilson(spreads: Sequence[_Spread]) -> Interval:
    if not spreads:
        return Interval(0.5, 0.0, 1.0)
    value = float(np.mean([s.value for s in spreads]))
    shrunk = float(np.mean([s.shrunk for s in spreads]))
    variance = sum(s.variance for s in spreads) / len(spreads) ** 2
    pairs = sum(s.pairs for s in spreads)
    tosses = min(shrunk * (1 - shrunk) / variance, pairs) if variance > 0 else pairs
    return Interval.of(value, float(tosses), all(s.learned for s in spreads))


def _known(members: Array, nonmembers: Array) -> tuple[Array, Array]:
    """Return scores with the middle one for those that are not a number, and the largest float for infinity."""
    pooled = np.concatenate([np.asarray(members, np.float64), np.asarray(nonmembers, np.float64)])
    unknown = np.isnan(pooled)
    order = np.sort(pooled[~unknown])
    pooled = np.where(unknown, order[(len(order) - 1) // 2] if len(order) else 0.0, pooled)
    pooled = np.clip(pooled, -LARGEST, LARGEST)
    return pooled[: len(members)], pooled[len(members) :]


def share_below(these: Array, those: Array) -> Array:
    """Return for each of ``these`` the share of ``those`` below it, ties at half."""
    order = np.sort(those)
    counts = np.searchsorted(order, these, "left") + np.searchsorted(order, these, "right")
    return np.asarray(counts / (2 * len(those)), np.float64)


def _above(scores: Array, thresholds: Array) -> Array:
    return 1.0 - share_below(thresholds, scores)


def _own_accuracy(members: Array, nonmembers: Array) -> float:
    """Return the balanced accuracy of a learned attack, which calls as many samples members as there are.

    It has chosen its side already, and what it learned from one half is in the scores of the other: a second
    choice by halves would read 0.53 for 20 and 20 samples with nothing to find.
    """
    threshold = np.array([len(nonmembers) / (len(members) + len(nonmembers))])  # of ranks from 0 to 1
    return float(0.5 + (_above(members, threshold) - _above(nonmembers, threshold)).item() / 2)


def _best(members: Array, nonmembers: Array) -> tuple[Array, float]:
    """Return the threshold, as an array of one, that separates best, and 1 or -1 for members above or below it."""
    values = np.unique(np.concatenate([members, nonmembers]))
    thresholds = values[1:] / 2 + values[:-1] / 2
    if not len(thresholds):
        return values[:1], 0.0
    gains = _above(members, thresholds) - _above(nonmembers, thresholds)
    best = np.flatnonzero(np.abs(gains) >= np.abs(gains).max() - 1e-12)
    middle = best[len(best) // 2]
    return thresholds[middle : middle + 1], float(np.sign(gains[middle]))
