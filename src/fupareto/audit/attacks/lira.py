"""LiRA and U-LiRA: likelihood-ratio membership attacks with many shadow models.

Carlini, Chien, Nasr, Song, Terzis and Tramèr, "Membership inference attacks from first principles", 2022. For
every sample, the scaled confidence (``tasks.signals.scaled``) of models that were trained with it is close to normal,
and so is that of models that were not; the score is the ratio of the audited model's likelihoods under the two.

U-LiRA (Hayes, Shumailov, Triantafillou, Khalifa and Papernot, "Inexact unlearning needs more careful evaluations
to avoid a false sense of privacy", 2024) is the same test with other models: those that were trained with the
sample and then unlearned it, against those that never saw it. ``scores`` serves both.
"""

import numpy as np
from numpy.typing import NDArray

from fupareto.audit.attacks.roc import Array, Interval, interval_of_wins

ENOUGH = 64  # models on one side of one sample, from which its own variance is known better than the common one
TINY = 1e-12


def scores(target: Array, shadows: Array, inside: NDArray[np.bool_]) -> Array:
    """Return ``log N(φ; μ_in, σ²_in) - log N(φ; μ_out, σ²_out)`` per sample; higher for members.

    ``target`` is (n,) scaled confidences of the audited model, ``shadows`` (models, n) those of shadow models and
    ``inside`` (models, n) says which of them were trained with which sample. Means are the sample's own. So is the
    variance with at least 64 models on that side, as in the paper; with fewer it is the variance around their
    means of all samples together. A mean of k values is itself uncertain, by a k-th of the variance, which is
    added: a sample that one model saw gets a smaller score than one that ten models saw.

    A sample that no model saw, or that all did, is scored 0: there is nothing to compare.
    """
    if shadows.shape != inside.shape or shadows.shape[1:] != target.shape:
        raise ValueError(
            f"target {target.shape}, shadows {shadows.shape}, inside {inside.shape}: not (n,), (models, n), (models, n)"
        )
    known = inside.any(axis=0) & ~inside.all(axis=0)
    ratio = _log_likelihood(target, shadows, inside) - _log_likelihood(target, shadows, ~inside)
    return np.where(known, ratio, 0.0)


def told_apart(with_: Array, without: Array) -> Interval:
    """Return the AUC, over models, of telling models that unlearned a client from models that never saw it.

    ``with_`` is (models, n), scaled confidences of one client's n samples under models that were trained with the
    client and unlearned it; ``without`` (models, n) under models that never saw it. A model's statistic is the
    mean over samples of the log-likelihood ratio as in ``scores``, fitted on other models, with one variance for
    all samples of a kind.

    Both models of a pair, one of each kind, are left out together, and the AUC is the share of pairs in which the
    unlearned one has the higher statistic (Airola et al., "An experimental comparison of cross-validation
    techniques for estimating the area under the ROC curve", 2011). Leaving out single models is the obvious way
    and wrong: a group's mean moves away from the model that left it, each model looks like the other kind, and
    without any difference the AUC is .21 for 4 models of each kind, .38 for 8, .46 for 16 (n = 200). In
    pairs it is .5 (.50, .50, .50).

    With fewer than three models of a kind nothing is left to learn from, and the AUC is 0.5, from 0 to 1.
    """
    if with_.ndim != 2 or without.ndim != 2 or with_.shape[1] != without.shape[1]:
        raise ValueError(f"with {with_.shape} and without {without.shape}: not (models, n) of the same n samples")
    if min(len(with_), len(without)) < 3 or not with_.shape[1]:
        return interval_of_wins(np.empty((0, 0)))
    mean, variance = _without_each(with_)
    other_mean, other_variance = _without_each(without)
    # [i, j]: models i and j are left out; how much better they fit the rest of one kind than of the other
    member = _distance(with_, other_mean) / other_variance - (_own_distance(with_, mean) / variance)[:, None]
    other = _own_distance(without, other_mean) / other_variance - _distance(mean, without) / variance[:, None]
    wins = (member > other) + 0.5 * (member == other)
    return interval_of_wins(wins, folds=min(wins.shape))


def _log_likelihood(target: Array, shadows: Array, mask: NDArray[np.bool_]) -> Array:
    count = mask.sum(axis=0)
    mean = np.where(mask, shadows, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = (np.where(mask, shadows - mean, 0.0) ** 2).sum(axis=0)
    freedom = np.maximum(count - 1, 0)
    common = squares.sum() / max(freedom.sum(), 1)
    variance = np.where(count >= ENOUGH, squares / np.maximum(freedom, 1), common)
    variance = np.maximum(variance * (1 + 1 / np.maximum(count, 1)), TINY)
    return np.asarray(-0.5 * ((target - mean) ** 2 / variance + np.log(variance)), np.float64)


def _without_each(models: Array) -> tuple[Array, Array]:
    """Return the mean (models, n) and the common variance (models,) of a group after each of its models left."""
    size = len(models)
    offset = models - models.mean(axis=0)
    left = models.mean(axis=0) - offset / (size - 1)
    squares = (offset**2).sum() - size / (size - 1) * (offset**2).sum(axis=1)
    return left, np.maximum(squares / (models.shape[1] * (size - 2)), TINY)


def _own_distance(models: Array, means: Array) -> Array:
    return np.asarray(((models - means) ** 2).sum(axis=1), np.float64)


def _distance(these: Array, those: Array) -> Array:
    """Return squared distances, (these, those), row by row to stay small in memory."""
    return np.array([((those - row) ** 2).sum(axis=1) for row in these])
