"""Pareto expansion: directions that lower the forget losses and, to first order, change no retained loss."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from fupareto.methods.fupareto.objectives import Objectives
from fupareto.pareto import Array, guidance


def expansion_hull(
    objectives: Objectives,
    forget: Sequence[str],
    span: Sequence[str],
    guided: Literal["forget", "all", "off"],
    scale: Literal["unit", "exact"],
) -> tuple[Array, list[int]]:
    """Return the hull of an expansion: projected forget gradients, eq. (7), and the guidance, eq. (8).

    Args:
        objectives: Losses and gradients of the clients that answered.
        forget: Ids of the forget clients.
        span: Ids of the clients whose gradients are projected out.
        guided: Clients whose losses the fairness guidance uses.
        scale: Scale of the guidance.

    Returns:
        The hull, and the positions of the live forget clients.
    """
    live = objectives.of_clients(forget, live=True)
    free, hull = objectives.free(live, objectives.of_clients(span, live=True))
    losses = objectives.answer.losses
    if guided == "forget" and free:
        h = guidance(losses[free], np.ones(len(free)), scale)
        hull = hull if h is None else np.vstack([hull, h @ hull])
    elif guided == "all" and free:
        h = guidance(losses, np.ones(len(losses)), scale)
        hull = hull if h is None else np.vstack([hull, h * objectives.scale])
    return hull, live


def baseline_losses(known: Mapping[str, float], now: Mapping[str, float], harm: float) -> dict[str, float]:
    """Return the baseline: the retained clients' losses before the expansions since the last improvement.

    For a client that was not sampled before, the baseline is its loss divided by ``harm``: earlier expansions are
    assumed to have raised its loss by the same factor as the mean loss of the sampled clients.

    Args:
        known: Baseline of the clients sampled since the last improvement.
        now: Current losses of the sampled clients.
        harm: Factor by which expansions have raised the mean loss of the clients in ``known``.
    """
    factor = harm if known else 1.0
    return {**{i: loss / factor for i, loss in now.items()}, **known}
