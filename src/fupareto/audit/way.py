"""The way gone: how far a model is on the way from the initial model to a retrained one, on any measure.

    way = (initial - model) / (initial - retrained)

0 is the initial model, 1 a retrained one; below 0 a model is further away than the initial one was, above 1 it lies
beyond the retrained one. The way does not depend on the unit or the direction of a measure. No distance to one
retrained model has a natural threshold, because two retrained models differ as well; the way has one, and two retrained
models say how precise it can be.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fupareto.audit.attacks.roc import Array
from fupareto.audit.intervals import LEVEL, z_value

DRAWS = 4000


@dataclass(frozen=True)
class Estimate:
    """A measured value with its standard error."""

    value: float
    error: float = 0.0

    def to_json(self) -> dict[str, float]:
        """Return it as audit.json has it."""
        return {"value": self.value, "error": self.error}


@dataclass(frozen=True)
class Way:
    """The way gone, with its 95 % interval; all None, with the ``reason``, where it is not defined."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as audit.json has it."""
        return {"value": self.value, "low": self.low, "high": self.high, "reason": self.reason}


def proportion(share: float, samples: float) -> Estimate:
    """Return a share of samples with its binomial standard error.

    The error is that of one more success and one more failure (Agresti and Coull, 1998), so that a share of 0 or 1
    has one too.
    """
    middle = (share * samples + 1) / (samples + 2)
    return Estimate(share, math.sqrt(middle * (1 - middle) / (samples + 2)) if samples > 0 else 0.5)


def way(initial: Estimate, model: Estimate, retrained: Estimate) -> Way:
    """Return the way that ``model`` has gone from ``initial`` to ``retrained``.

    The interval is that of 4,000 draws of the three values, each normal around its estimate. They are the same
    standard normal numbers for every way, each with its mirror image, so that a way is repeatable and does not depend
    on the sign of its measure. Taking the errors as independent errs on the safe side where models are measured on
    the same samples. Where the initial and the retrained model do not differ beyond chance there is no way to go, and
    none is returned.
    """
    apart = initial.value - retrained.value
    if not abs(apart) > z_value(LEVEL) * math.hypot(initial.error, retrained.error):
        return Way(reason="the initial and the retrained model do not differ beyond chance")
    three = (initial, model, retrained)
    first, own, last = (e.value + e.error * drawn for e, drawn in zip(three, _normal(), strict=True))
    low, high = _ends((first - own) / _away_from_zero(first - last))
    value = (initial.value - model.value) / apart
    return Way(value, min(low, value), max(high, value))


def ratio(above: Estimate, below: Estimate) -> Way:
    """Return how many times ``below`` is ``above``, both of them distances, with an interval found in the same way."""
    if not below.value > z_value(LEVEL) * below.error:
        return Way(reason="the distance to compare with does not differ from zero beyond chance")
    own, other, _ = _normal()
    drawn = np.maximum(above.value + above.error * own, 0) / _away_from_zero(below.value + below.error * other)
    low, high = _ends(drawn)
    value = above.value / below.value
    return Way(value, min(low, value), max(high, value))


@cache
def _normal() -> Array:
    """Return standard normal draws and their mirror images: (3, 2 · DRAWS)."""
    half = np.random.default_rng(0).standard_normal((3, DRAWS))
    return np.concatenate([half, -half], axis=1)


def _ends(drawn: Array) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _away_from_zero(values: Array) -> Array:
    return np.where(np.abs(values) < 1e-12, 1e-12, values)
