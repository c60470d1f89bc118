"""Pareto expansion: a direction that forgets and that, to first order, no retained client notices."""

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
    """Return the forget clients' gradients off those of the clients ``span``, and the guidance, eqs. (7) and (8).

    ``guided`` says whose losses the fairness guidance looks at: those of the forget clients, of all, or nobody's. The
    positions of the live forget clients come too.
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
    """Return the retained clients' losses before the expansions since the last improvement.

    A client that is asked for the first time since then is taken to have been harmed like those that were asked
    before, whose mean loss rose by the factor ``harm``: another sample of clients must not start from what earlier
    expansions have left.
    """
    factor = harm if known else 1.0
    return {**{i: loss / factor for i, loss in now.items()}, **known}
