"""What attacks and comparisons see of a model's outputs: numbers per sample that a client computes from its own data.

Formulas are stable where the obvious ones are not: models that memorised their data are told apart by losses far below
1e-16. Everything is computed in float64.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LARGEST = 1e30
FIRST = 10  # sorted outputs that are shown


@dataclass(frozen=True)
class Outputs:
    """A model's logits for some samples, and the labels that these samples have."""

    logits: Array  # (n, classes)
    labels: Indices  # (n,)

    def __post_init__(self) -> None:
        if self.logits.ndim != 2 or self.logits.shape[1] < 2:
            raise ValueError(f"logits are (samples, at least two classes), these have shape {self.logits.shape}")
        if self.labels.shape != self.logits.shape[:1]:
            raise ValueError(f"{len(self.logits)} rows of logits, but labels have shape {self.labels.shape}")
        if len(self) and not 0 <= self.labels.min() <= self.labels.max() < self.logits.shape[1]:
            raise ValueError(f"labels are class numbers from 0 to {self.logits.shape[1] - 1}")

    def __len__(self) -> int:
        return len(self.logits)

    def take(self, which: Indices) -> "Outputs":
        """Return the samples at these places."""
        return Outputs(self.logits[which], self.labels[which])


def confidences(outputs: Outputs) -> Array:
    """Return the softmax sorted from most to least likely, (n, classes): what can be seen without a label."""
    return np.exp(log_confidences(outputs))


def log_confidences(outputs: Outputs) -> Array:
    """Return the logarithm of ``confidences``, which still tells 1 - 1e-17 from 1 and 1e-400 from 0."""
    logits = -np.sort(-_clean(outputs), axis=1)
    log_p = logits - _log_sum_exp(logits)[:, None]
    log_p[:, 0] = _log_sigmoid(logits[:, 0] - _log_sum_exp(logits[:, 1:]))
    return np.asarray(log_p, np.float64)


def scaled(outputs: Outputs) -> Array:
    """Return the label's ``log(p/(1-p))``, which over models is close to normal, as LiRA needs it.

    Computed as the label's logit minus the log-sum-exp of the others, the stable form in Carlini et al.,
    "Membership inference attacks from first principles", 2022: ``1 - p`` itself is 0 once p rounds to 1.
    """
    logits = _clean(outputs)
    return _own(logits, outputs.labels) - _log_sum_exp(_others(logits, outputs.labels))


def low_loss(outputs: Outputs) -> Array:
    """Return minus the cross-entropy of the label.

    Yeom, Giacomelli, Fredrikson and Jha, "Privacy risk in machine learning: analyzing the connection to
    overfitting", 2018. Losses far below 1e-16, usual in models that memorised their data, keep their order.
    """
    return _log_sigmoid(scaled(outputs))


def probability(outputs: Outputs) -> Array:
    """Return the softmax probability of the label."""
    return np.exp(low_loss(outputs))


def margin(outputs: Outputs) -> Array:
    """Return how far the label's logit is above the best other one."""
    logits = _clean(outputs)
    return np.asarray(_own(logits, outputs.labels) - _others(logits, outputs.labels).max(axis=1), np.float64)


def low_entropy(outputs: Outputs) -> Array:
    """Return minus the entropy of the softmax: models are surer of what they know, right or wrong."""
    log_p = log_confidences(outputs)
    return np.asarray((np.exp(log_p) * log_p).sum(axis=1), np.float64)


@dataclass(frozen=True)
class Signals:
    """What an attack may see of every sample: no label, no input.

    Attributes:
        loss: Loss of the sample (samples,).
        margin: By how much the right answer leads (samples,).
        entropy: Entropy of the outputs as probabilities (samples,).
        scaled: log(p / (1 - p)) of the right answer's probability p (samples,).
        outputs: The first ten logarithms of probabilities, from most to least likely (samples, at most 10).
    """

    loss: Array
    margin: Array
    entropy: Array
    scaled: Array
    outputs: Array

    def __len__(self) -> int:
        return len(self.loss)

    def take(self, which: Indices) -> "Signals":
        """Return the samples at these places."""
        return Signals(**{name: values[which] for name, values in vars(self).items()})

    @property
    def probability(self) -> Array:
        """Return the probability of the right answer."""
        return np.exp(-self.loss)

    def scores(self) -> dict[str, Array]:
        """Return scores that are higher for members, by the name of the attack."""
        return {"loss": -self.loss, "margin": self.margin, "entropy": -self.entropy}


def of(outputs: Outputs) -> Signals:
    """Return the signals of one decision per sample."""
    return Signals(
        loss=-low_loss(outputs),
        margin=margin(outputs),
        entropy=-low_entropy(outputs),
        scaled=scaled(outputs),
        outputs=log_confidences(outputs)[:, :FIRST],
    )


def joined(parts: list[Signals]) -> Signals:
    """Return the signals of several batches as one."""
    return Signals(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])})


def _clean(outputs: Outputs) -> Array:
    """Return logits without NaN or infinity, minus the row's largest: then no common part costs precision."""
    logits = np.asarray(outputs.logits, np.float64)
    broken = np.isnan(logits).any(axis=1, keepdims=True)
    logits = np.clip(np.where(broken, 0.0, logits), -LARGEST, LARGEST)
    return np.asarray(logits - logits.max(axis=1, keepdims=True), np.float64)


def _log_sigmoid(odds: Array) -> Array:
    return np.asarray(-np.logaddexp(0.0, -odds), np.float64)


def _log_sum_exp(logits: Array) -> Array:
    largest = logits.max(axis=1)
    return np.asarray(largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)), np.float64)


def _own(logits: Array, labels: Indices) -> Array:
    return np.asarray(logits[np.arange(len(labels)), labels], np.float64)


def _others(logits: Array, labels: Indices) -> Array:
    """Return the logits of all classes but the label's, (n, classes - 1)."""
    keep = np.arange(logits.shape[1]) != labels[:, None]
    return np.asarray(logits[keep].reshape(len(labels), logits.shape[1] - 1), np.float64)
