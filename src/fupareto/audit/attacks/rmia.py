"""RMIA: a membership attack that compares likelihoods under the audited model and under a few reference models.

Zarifzadeh, Liu and Shokri, "Low-cost high-power membership inference attacks", 2024. A plain loss attack takes
easy samples for members. RMIA compares the probability of a sample x under the audited model with its average
over reference models, and that ratio with the ratios of samples z from the population.
"""

import numpy as np

from fupareto.audit.attacks.roc import Array
from fupareto.tasks.signals import Indices

LEAST = 1e-100  # smaller probabilities count as this one, so that ratios of two of them are 1


def scores(
    target: Array,  # (n,) probability of each sample's label under the audited model
    references: Array,  # (models, n) the same under the reference models
    population_target: Array,  # (k,) the same for samples of the population
    population_references: Array,  # (models, k)
    gamma: float = 1.0,
    a: float | None = None,
    own: Indices | None = None,  # (n,) which of the population a sample is itself, -1 if none
) -> Array:
    """Return the share of z with ``LR(x, z) = (p(x|θ) / p(x)) / (p(z|θ) / p(z)) >= γ``; higher for members.

    ``p(x)`` is the mean over reference models, half of which were trained with x (the online form, ``a=None``).
    When none of them was (offline), their mean is too low for p(x), and half of the models that were is made up:
    ``p(x) = ((1 + a) p_out(x) + 1 - a) / 2``. With a = 1 that is the mean itself; smaller a stands for models that
    memorise samples more. The authors tune ``a`` by attacking a reference model in place of the audited one.
    Ratios of z are formed in the same way.

    γ = 1, as the authors' software has it, orders samples most finely: the score is the share of z whose ratio is
    at most the γ-th part of x's, so a larger γ puts more samples at exactly 0.

    A single reference is a poor mean, as it either saw x or did not. On small networks that learned everything by
    heart one reference does worse than the plain loss (AUC .06 lower), two as well, four better (.04 higher).

    >>> p, z = np.array([0.9, 0.3]), np.array([0.5, 0.5, 0.5, 0.5])
    >>> scores(p, np.array([[0.3, 0.3]]), z, np.array([[0.4, 0.5, 0.1, 0.2]]))
    array([0.75, 0.25])
    """
    population = gamma * _ratio(population_target, population_references, a)
    ratio = _ratio(target, references, a)
    below = np.searchsorted(np.sort(population), ratio, side="right").astype(np.float64)
    others = np.full(len(ratio), float(len(population)))
    if own is not None:
        itself = own >= 0
        below[itself] -= population[own[itself]] <= ratio[itself]
        others[itself] -= 1.0
    shares = np.divide(below, others, out=np.full(len(ratio), 0.5), where=others > 0)
    return np.asarray(shares, np.float64)


def _ratio(target: Array, references: Array, a: float | None) -> Array:
    if references.ndim != 2 or references.shape[1:] != target.shape or not len(references):
        raise ValueError(f"references are (models, {len(target)}) probabilities, these have shape {references.shape}")
    mean = references.mean(axis=0)
    expected = mean if a is None else ((1 + a) * mean + 1 - a) / 2
    return np.asarray(np.maximum(target, LEAST) / np.maximum(expected, LEAST), np.float64)
