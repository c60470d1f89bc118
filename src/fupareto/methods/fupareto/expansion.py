"""How is a client forgotten where nobody else may notice? The direction of an expansion, and what it may cost."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from fupareto.methods.fupareto.objectives import Objectives, Search
from fupareto.pareto import Array, guidance


def expansion_direction(
    objectives: Objectives,
    forget: Sequence[str],
    span: Sequence[str],
    guided: str,
    scale: Literal["unit", "exact"],
    rescale: bool,
) -> Array | None:
    """Return the forget clients' common descent off the gradients of the clients ``span``, eqs. (7) and (8).

    ``guided`` says whose losses the fairness guidance looks at: those of the forget clients, of all, or nobody's.
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
    return objectives.descent(hull, objectives.mean_length(live) if rescale else None)


def fall_back(found: Search, how: str) -> Search:
    """When no expansion step passes: the ``best`` tried one for the forget clients together, the smallest, or none."""
    if found.accepted is not None or not found.tried or how == "skip":
        return found
    smallest = how == "min_step"
    k = len(found.tried) - 1 if smallest else int(np.argmin(found.changes))
    usable = found.changes[k] < (np.inf if smallest else 0.0)  # infinite: diverged, or nobody answered
    return dataclasses.replace(found, accepted=found.tried[k]) if usable else found


def calm_losses(calm: Mapping[str, float], now: Mapping[str, float], raised: float) -> dict[str, float]:
    """Return what the retained clients' losses were before the expansions since the last improvement.

    Who is asked for the first time since then is taken to have been harmed like those who were asked before, whose
    losses were ``raised`` by that factor: another sample must not start from what earlier expansions have left.
    """
    factor = raised if calm else 1.0
    return {**{i: loss / factor for i, loss in now.items()}, **calm}
