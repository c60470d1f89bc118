"""Step Size Line Search: trial steps and the condition of sufficient decrease, Eq. (6)."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fupareto.pareto.gram import Array


def trial_steps(eta: float, s: int, enlarge: bool) -> tuple[float, ...]:
    """Return the trial steps ``2^s η, …, η, …, 2^-s η``, or ``η, …, 2^-s η`` without ``enlarge``.

    A Pareto improvement enlarges (2s + 1 steps); an expansion does not (s + 1 steps), so that it stays near the Pareto
    front.

    Args:
        eta: Base step ``η``.
        s: Number of doublings and halvings.
        enlarge: Whether to start from ``2^s η``.

    >>> trial_steps(1.0, 2, enlarge=True)
    (4.0, 2.0, 1.0, 0.5, 0.25)
    >>> trial_steps(1.0, 2, enlarge=False)
    (1.0, 0.5, 0.25)
    """
    if not (eta > 0.0 and np.isfinite(eta)):
        raise ValueError(f"the base step eta must be positive and finite, not {eta}")
    if s < 0:
        raise ValueError(f"the search breadth s must not be negative, not {s}")
    return tuple(eta * 2.0**k for k in range(s if enlarge else 0, -s - 1, -1))


def highest_acceptable(
    before: Array,
    slopes: Array,
    step: float,
    beta: float = 1e-4,
    rule: Literal["descent", "printed"] = "descent",
    slack: Array | float = 0.0,
) -> Array:
    """Return, per client, the largest loss after a step that is a sufficient decrease.

    The rule is ``F_i(ω - η d) ≤ F_i(ω) - β η g_i·d`` (Eq. 6 with its sign corrected). Eq. (6) prints ``+ β η g_i·d``,
    which accepts every loss that *rises* by less than that: the sign belongs to a direction that is added. At ``d = 0``
    both rules accept every step, so the caller must reject a zero direction.

    Args:
        before: Losses at ``ω`` (m,).
        slopes: Inner products ``g_i·d`` of the unscaled gradients with the direction (m,); positive where the step
            ``-η d`` descends.
        step: ``η``.
        beta: ``β``.
        rule: ``"descent"`` is the rule above; ``"printed"`` is Eq. (6) as printed.
        slack: Absolute allowance, for clients whose loss is already zero.
    """
    sign = {"descent": -1.0, "printed": 1.0}[rule]
    limit: Array = np.asarray(before, dtype=np.float64) + sign * beta * step * np.asarray(slopes) + slack
    return limit


def accepted(after: Array, highest: Array) -> NDArray[np.bool_]:
    """Return, per client, whether the loss after a step is at most the highest acceptable one, and a finite number."""
    return np.isfinite(after) & (np.asarray(after, dtype=np.float64) <= highest)
