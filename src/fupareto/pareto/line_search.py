"""Which step sizes are worth trying, and which clients can live with one?"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fupareto.pareto.gram import Array


def trial_steps(eta: float, s: int, enlarge: bool) -> tuple[float, ...]:
    """Return ``2^s η, …, η, …, 2^-s η``, halving (Step Size Line Search); without ``enlarge`` from ``η``.

    A Pareto improvement enlarges (2s + 1 steps); an expansion does not (s + 1 steps), so as not to jump away
    from the frontier.

    >>> trial_steps(1.0, 2, enlarge=True)
    (4.0, 2.0, 1.0, 0.5, 0.25)
    >>> trial_steps(1.0, 2, enlarge=False)
    (1.0, 0.5, 0.25)
    """
    if not (eta > 0.0 and np.isfinite(eta)):
        raise ValueError(f"the base step eta must be positive and finite, not {eta}")
    if s < 0:
        raise ValueError(f"the search breadth s must not be negative, it is {s}")
    return tuple(eta * 2.0**k for k in range(s if enlarge else 0, -s - 1, -1))


def sufficient_decrease(
    before: Array,
    after: Array,
    slopes: Array,
    step: float,
    beta: float = 1e-4,
    rule: Literal["descent", "printed"] = "descent",
    slack: Array | float = 0.0,
) -> NDArray[np.bool_]:
    """Return, per client, whether ``F_i(ω - η d) ≤ F_i(ω) - β η g_i·d`` (Eq. 6 with its sign corrected).

    ``before`` and ``after`` are the losses, ``slopes`` the inner products ``g_i·d`` of unscaled gradients
    with the direction, positive where the step ``-η d`` descends, and ``step`` is ``η``. ``slack`` is an
    absolute allowance, for clients whose loss is already zero.

    Eq. (6) prints ``+ β η g_i·d``, which accepts every loss that *rises* by less than that: the sign belongs
    to a direction that is added. ``"printed"`` is that literal reading. At ``d = 0`` both rules accept any
    step, so a zero direction is the caller's to refuse. A NaN or infinite loss is never accepted.
    """
    limit = highest_acceptable(before, slopes, step, beta, rule, slack)
    return np.isfinite(after) & (np.asarray(after, dtype=np.float64) <= limit)


def highest_acceptable(
    before: Array,
    slopes: Array,
    step: float,
    beta: float = 1e-4,
    rule: Literal["descent", "printed"] = "descent",
    slack: Array | float = 0.0,
) -> Array:
    """Return, per client, the right-hand side of :func:`sufficient_decrease`: one loss above it is a veto."""
    sign = {"descent": -1.0, "printed": 1.0}[rule]
    limit: Array = np.asarray(before, dtype=np.float64) + sign * beta * step * np.asarray(slopes) + slack
    return limit
