"""Differences of AUCs: the same attack on the same samples, on two models."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fupareto.audit.attacks.membership import Attacked
from fupareto.audit.attacks.roc import Array, Scores, placements


def against(attacks: Mapping[str, Attacked], baseline: Mapping[str, Attacked]) -> dict[str, Attacked]:
    """Return a model's attacks, each with its difference from the same attack on a baseline model.

    A result's entry ``against`` has the baseline's AUC (``auc``), the ``difference`` and its standard ``error``.
    Attacks that were not made on the baseline, or on other samples of it, have none.
    """
    return {i: _against(own, baseline[i]) if i in baseline else own for i, own in attacks.items()}


def _against(own: Attacked, other: Attacked) -> Attacked:
    same = np.array_equal(own.members, other.members) and np.array_equal(own.nonmembers, other.nonmembers)
    results: dict[str, Mapping[str, Any]] = {}
    for name, result in own.results.items():
        mine, theirs = own.scores[name], other.scores.get(name)
        if not same or theirs is None or not len(mine.members) or not len(theirs.members):
            results[name] = result
            continue
        value, error = difference(mine, theirs)
        told = {"auc": other.results[name]["auc"], "difference": value, "error": error}
        results[name] = {**result, "against": told}
    return replace(own, results=results)


def difference(mine: Scores, theirs: Scores) -> tuple[float, float]:
    """Return the difference of two AUCs on the same samples, and its standard error.

    DeLong, DeLong and Clarke-Pearson (1988): an AUC is a mean of placements, so the difference is a mean of their
    differences, whose variances give its own, whatever the correlation of the two scores. One more difference of half
    on either side stands for the sample not seen yet, as in ``roc.mean_interval``; attacks that learned from these
    samples vary more than their placements say, by the factor that ``roc`` gives the reason for.
    """
    sides = [a - b for a, b in zip(placements(mine.members, mine.nonmembers), _places(theirs), strict=True)]
    value = float(sides[0].mean())
    variance = sum(_variance(side) for side in sides)
    folds = max(mine.folds, theirs.folds)
    return value, math.sqrt(variance * (1 + folds / (folds - 1)) if folds > 1 else variance)


def _places(scores: Scores) -> tuple[Array, Array]:
    return placements(scores.members, scores.nonmembers)


def _variance(side: Array) -> float:
    """Return the variance of a mean, with one more value that is half away from it."""
    more = np.append(side, side.mean() + 0.5)
    return float(more.var(ddof=1)) / len(more)
