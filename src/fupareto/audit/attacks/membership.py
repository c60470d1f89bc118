"""Membership attacks that need nothing but the audited model's outputs.

For one client and one model: members are samples that the client trained with, non-members others of the same
kind that it held out. The headline attack learns, from the sorted softmax alone, to tell them apart (Shokri,
Stronati, Song and Shmatikov, "Membership inference attacks against machine learning models", 2017; Liu et al.,
"FedEraser", 2021, for forgetting); three others score every sample without learning. Attacks that need more
models, as RMIA and LiRA do, are added by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fupareto.audit.attacks import roc
from fupareto.audit.attacks.roc import Array, Scores
from fupareto.tasks.signals import Indices, Signals

FOLDS = 5
FEWEST = 5  # samples a side that the learned attack needs


@dataclass(frozen=True)
class Attacked:
    """Results of the attacks on one client and one model, with the scores behind them."""

    members: Indices  # which of the samples given to ``attack`` were used
    nonmembers: Indices
    scores: Mapping[str, Scores]
    results: Mapping[str, Mapping[str, Any]]

    def plus(self, name: str, members: Array, nonmembers: Array, rng: np.random.Generator) -> "Attacked":
        """Return it with one more attack, given as scores of all samples that ``attack`` was given, in order."""
        scores = Scores(np.asarray(members)[self.members], np.asarray(nonmembers)[self.nonmembers])
        return self._with(name, scores, rng)

    def to_json(self) -> dict[str, Any]:
        """Return the client's entry of audit.json."""
        return {
            "members": len(self.members),
            "nonmembers": len(self.nonmembers),
            "attacks": {name: dict(result) for name, result in self.results.items()},
        }

    def _with(self, name: str, scores: Scores, rng: np.random.Generator) -> "Attacked":
        results = {**self.results, name: roc.result(scores, rng)}
        return replace(self, scores={**self.scores, name: scores}, results=results)


def attack(member: Signals, nonmember: Signals, rng: np.random.Generator, balance: bool = True) -> Attacked:
    """Attack one client: "confidence" (learned), "loss", "margin", "entropy".

    ``balance`` leaves out samples of the larger side at random until both are of the same size, as membership
    attacks are usually reported. No AUC needs it: with all 240 members against 40 non-members instead of 40
    against 40, intervals are a quarter narrower.
    """
    sizes = len(member), len(nonmember)
    most = min(sizes) if balance else max(sizes)
    chosen = [np.sort(rng.permutation(size)[:most]).astype(np.int64) for size in sizes]
    member, nonmember = member.take(chosen[0]), nonmember.take(chosen[1])
    found = Attacked(chosen[0], chosen[1], {}, {})._with("confidence", learned(member, nonmember, rng), rng)
    inside, outside = member.scores(), nonmember.scores()
    for name in inside:
        found = found._with(name, Scores(inside[name], outside[name]), rng)
    return found


def learned(member: Signals, nonmember: Signals, rng: np.random.Generator) -> Scores:
    """Return held-out scores of a logistic regression on the sorted outputs, without any label.

    Its inputs are ``asinh(log p)``. Probabilities themselves are all but constant in a model that is sure of
    everything, and the attack would not see what it is looking for: on a small network that learned 200 digits by
    heart, three in ten with a wrong label, its AUC is .69 with p and .77 with log p. The asinh makes no difference
    there; it keeps logits in the thousands, as of models that unlearned by ascent, from ruling the standardisation.

    Every sample is scored by a model that was not trained on it: in ``FOLDS`` parts, fewer where a part would
    have less than two samples a side. Scores are replaced by their rank within their part. Raw scores of different
    parts come from different models, each of which was trained on the side of a left-out sample without it, and so
    places it a little further from that side: an attack on nothing has an AUC of .487 at 20 samples a side, .494 at
    100, .499 at 500. Within a part all samples are scored by the same model, the expected AUC is .5, and so it is with
    ranks (.504, .500, .501, each ± .002). The price is that TPRs at a small false positive rate are coarse.

    With fewer than ``FEWEST`` samples a side there is nothing to learn from: no scores, and an AUC of 0.5 with an
    interval from 0 to 1.
    """
    smaller = min(len(member), len(nonmember))
    if smaller < FEWEST:
        return Scores(np.empty(0), np.empty(0))
    folds = min(FOLDS, smaller // 2)
    sides = [np.arcsinh(seen.outputs) for seen in (member, nonmember)]
    parts = [rng.permutation(np.arange(len(side)) % folds) for side in sides]
    scores = [np.empty(len(side)) for side in sides]
    for fold in range(folds):
        held = [part == fold for part in parts]
        seen = [side[~mask] for side, mask in zip(sides, held, strict=True)]
        raw = _judge(seen, np.concatenate([side[mask] for side, mask in zip(sides, held, strict=True)]))
        scores[0][held[0]], scores[1][held[1]] = np.split(roc.share_below(raw, raw), [held[0].sum()])
    return Scores(scores[0], scores[1], folds)


def summary(attacks: Mapping[str, Attacked]) -> dict[str, Any]:
    """Return a stage's entry of audit.json: every client's results, and per attack the mean AUC over clients.

    A client that an attack could not be tried on counts in no mean: its AUC of 0.5 was not measured.
    """
    names = dict.fromkeys(name for found in attacks.values() for name in found.scores)
    return {
        "clients": {client: found.to_json() for client, found in attacks.items()},
        "mean": {
            name: roc.mean_interval([a.scores[name] for a in attacks.values() if name in a.scores]).to_json()
            for name in names
        },
    }


def _judge(seen: Sequence[Array], unseen: Array) -> Array:
    """Learn from members and non-members, both with the same weight, and return others' log-odds of membership.

    Logistic regression with ``½‖w‖²`` on standardised inputs, by Newton's method: ten classes and a few hundred
    samples take a millisecond.
    """
    inputs = np.concatenate(seen)
    mean, spread = inputs.mean(axis=0), inputs.std(axis=0)
    spread = np.where(spread > 1e-12 * np.abs(mean) + 1e-300, spread, np.inf)  # what does not vary tells nothing

    def prepared(rows: Array) -> Array:
        return np.column_stack([(rows - mean) / spread, np.ones(len(rows))])

    sizes = [len(side) for side in seen]
    signs = np.repeat([1.0, -1.0], sizes)
    weights = np.repeat([len(inputs) / (2 * size) for size in sizes], sizes)
    return np.asarray(prepared(unseen) @ _logistic(prepared(inputs), signs, weights), np.float64)


def _logistic(x: Array, signs: Array, weights: Array) -> Array:
    """Minimise ``Σ weight log(1 + exp(-sign x·w)) + ½‖w‖²``, without the penalty on the last entry of w."""
    penalty = np.append(np.ones(x.shape[1] - 1), 0.0)

    def loss(w: Array) -> float:
        return float(weights @ np.logaddexp(0.0, -signs * (x @ w)) + penalty @ w**2 / 2)

    w = np.zeros(x.shape[1])
    for _ in range(100):
        wrong = np.exp(-np.logaddexp(0.0, signs * (x @ w)))  # the chance given to the wrong side
        gradient = penalty * w - x.T @ (weights * signs * wrong)
        curvature = (x.T * (weights * wrong * (1 - wrong))) @ x + np.diag(penalty + 1e-12)
        step = np.linalg.solve(curvature, gradient)
        while loss(w - step) > loss(w) and np.abs(step).max() > 1e-9:
            step = step / 2
        w = w - step
        if np.abs(step).max() < 1e-9:
            break
    return np.asarray(w, np.float64)
