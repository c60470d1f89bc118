"""Confidence intervals for shares of test samples, and for their differences between two models.

A level is the chance to hold the truth, 0.95 unless told otherwise. Where the worst of several clients is looked at,
``simultaneous`` gives the level at which all intervals together hold their truths with that chance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

LEVEL = 0.95

Ends = tuple[float, float]  # lower and upper end of an interval


@dataclass(frozen=True)
class Pair:
    """One client's accuracy under two models, measured on the same ``samples`` test samples."""

    before: float
    after: float
    samples: int


def simultaneous(looks: int, level: float = LEVEL) -> float:
    """Return the level of each of ``looks`` intervals that all hold with ``level`` (Bonferroni's inequality).

    It needs no independence, so it also serves several attacks on the same samples.
    """
    return 1 - (1 - level) / max(looks, 1)


def z_value(level: float = LEVEL) -> float:
    """Return the normal quantile of a two-sided interval."""
    return NormalDist().inv_cdf((1 + level) / 2)


def wilson(share: float, samples: float, level: float = LEVEL) -> Ends:
    """Return the score interval of a share (Wilson, "Probable inference", 1927).

    ``samples`` need not be whole: see ``mean_change``.
    """
    if samples <= 0:
        return 0.0, 1.0
    z = z_value(level)
    scale = 1 + z**2 / samples
    centre = (share + z**2 / (2 * samples)) / scale
    half = z * math.sqrt(share * (1 - share) / samples + z**2 / (4 * samples**2)) / scale
    return min(max(centre - half, 0.0), share), max(min(centre + half, 1.0), share)


def exact(hits: int, samples: int, level: float = LEVEL) -> Ends:
    """Return the exact interval of a share (Clopper and Pearson, 1934), which never holds less often than it says.

    It is for attack success rates: they are close to 0, where approximations are worst, and a claim that a mark is
    gone must not rest on one.
    """
    from scipy.special import betaincinv

    if samples <= 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = float(betaincinv(hits, samples - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, samples - hits, 1 - tail)) if hits < samples else 1.0
    return low, high


def change(pair: Pair, level: float = LEVEL) -> Ends:
    """Return the interval of a client's change in accuracy; see ``mean_change``."""
    return mean_change([pair], level)


def mean_change(pairs: Sequence[Pair], level: float = LEVEL) -> Ends:
    """Return the interval of the unweighted mean over clients of their change in accuracy.

    Newcombe's hybrid score interval for the difference of two proportions ("Interval estimation for the difference
    between independent proportions: comparison of eleven methods", Statistics in Medicine 17, 1998, method 10): each
    end is as far away as the ends of the two Wilson intervals together. It keeps its level down to a few samples and
    at accuracies of 0 and 1, where the usual normal approximation has no width at all.

    The two models are measured on the same samples, but how often both are right on the same one is not known to the
    server. Taking them as independent errs on the safe side wherever models tend to be right on the same samples.

    The mean of k clients with n_i samples has the variance of one client with ``k² / Σ 1/n_i`` samples if all have
    the same accuracy, and a smaller one if not (Kish, "Survey sampling", 1965, on effective sample sizes).
    """
    if not pairs or any(pair.samples <= 0 for pair in pairs):
        return -1.0, 1.0
    count = len(pairs)
    samples = count**2 / sum(1 / pair.samples for pair in pairs)
    before, after = (sum(values) / count for values in zip(*((p.before, p.after) for p in pairs), strict=True))
    first, last = wilson(before, samples, level), wilson(after, samples, level)
    difference = after - before
    low = difference - math.hypot(after - last[0], first[1] - before)
    high = difference + math.hypot(last[1] - after, before - first[0])
    return max(low, -1.0), min(high, 1.0)
