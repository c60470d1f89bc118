"""The line search (Step Size Line Search, eq. 6): which of the trial steps is taken.

Improvement and expansion search differently. An improvement gives every client a veto and enlarges the step first; an
expansion is decided by the forget clients alone, within a limit on what it may cost the retained ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from torch import Tensor

from fupareto.federation.collected import Missing, Trial
from fupareto.federation.contract import Federation
from fupareto.methods.fupareto.objectives import Objectives
from fupareto.pareto import Array, combine, highest_acceptable
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class Rule:
    """When a client accepts a step (eq. 6), and in which mode its loss is computed."""

    beta: float = 1e-4
    armijo: Literal["descent", "printed"] = "descent"
    mode: str = "eval"
    seed: int = 0
    fallback: Literal["best", "skip"] = "best"  # of an expansion none of whose steps passes


@dataclass(frozen=True)
class Line:
    """A direction, as coefficients over the clients' gradients, and the steps that are tried along it."""

    w: Tensor
    objectives: Objectives
    coefficients: Array
    steps: tuple[float, ...]
    rule: Rule

    @cached_property
    def direction(self) -> Tensor:
        """Return the direction in parameter space."""
        return combine(self.coefficients, self.objectives.rows)

    @property
    def trial(self) -> Trial:
        """Return the models whose losses are asked for."""
        return Trial(self.w, self.direction, self.steps, self.rule.mode, self.rule.seed)

    def positions(self, losses: Mapping[str, Loss]) -> list[int]:
        """Return the positions of those clients of ``losses`` whose gradients are known."""
        return self.objectives.of_clients(tuple(losses))

    def limits(self, positions: list[int]) -> list[Array]:
        """Return for every step the largest loss that each client accepts.

        Slopes are of one batch, so pseudo-gradients are divided by the number of batches in them. Clients that are not
        live keep a veto, within their allowance: they must not be un-forgotten.
        """
        answer = self.objectives.answer
        before, allowance = answer.losses[positions], self.objectives.allowance[positions]
        slopes = (self.objectives.gram @ self.coefficients)[positions] / answer.steps[positions]
        return [
            highest_acceptable(before, slopes, step, self.rule.beta, self.rule.armijo, allowance) for step in self.steps
        ]


@dataclass(frozen=True)
class Found:
    """What a line search found."""

    direction: Tensor | None = None
    accepted: float | None = None  # the step that is taken
    tried: tuple[float, ...] = ()
    cosines: dict[str, float] = field(default_factory=dict)
    missing: Missing = field(default_factory=dict)
    vetoed: str = ""  # the client that refused last, which is asked first in the next search
    harm: float | None = None  # factor by which the step raised the retained clients' mean loss, where it is known


@dataclass(frozen=True)
class HarmLimit:
    """What expansions may cost the retained clients: a share of their mean loss before the first of them."""

    baseline: Mapping[str, float]  # losses before the expansions since the last improvement
    share: float  # by which the mean loss may be above its baseline

    def of(self, ids: list[str], losses: Array) -> tuple[float | None, bool]:
        """Return the factor by which losses are above their baseline, and whether that is too much."""
        heard = ~np.isnan(losses)
        if not heard.any():
            return None, False
        baseline, now = np.array([self.baseline[i] for i in ids])[heard].mean(), losses[heard].mean()
        return float(now / max(baseline, 1e-12)), bool(now > (1.0 + self.share) * baseline)


def search_improvement(federation: Federation, line: Line, losses: Mapping[str, Loss], first: str = "") -> Found:
    """Return the first step that no client of ``losses`` vetoes; ``first`` is asked first.

    A veto settles a step, so the others need not be asked about it.
    """
    positions = line.positions(losses)
    ids = [line.objectives.answer.ids[k] for k in positions]
    limits = line.limits(positions)
    found = Found(line.direction, cosines=line.objectives.cosines(line.coefficients), vetoed=first)
    by_client = [dict(zip(ids, limit.tolist(), strict=True)) for limit in limits]
    rows = federation.losses(line.trial, {i: losses[i] for i in ids}, found.missing, by_client, first)
    for step, limit, after in zip(line.steps, limits, rows, strict=False):
        found = replace(found, tried=(*found.tried, step))
        heard = ~np.isnan(after)
        refused = heard & ~(np.isfinite(after) & (after <= limit))
        if heard.any() and not refused.any():
            return replace(found, accepted=step)
        against = [i for i, no in zip(ids, refused, strict=True) if no]
        found = replace(found, vetoed=found.vetoed if found.vetoed in against else next(iter(against), found.vetoed))
    return found


def search_expansion(
    federation: Federation,
    line: Line,
    forget: Mapping[str, Loss],
    retained: Mapping[str, Loss],
    limit: HarmLimit,
) -> Found:
    """Return the first step that every forget client accepts and that harms the ``retained`` ones within the limit.

    Where none passes, the rule's fallback decides: ``best`` is the tried step that lowers the forget clients' losses
    most in sum, if one does.
    """
    ids, before, limits, watched = _sides(line, forget, retained, limit)
    found = Found(line.direction, cosines=line.objectives.cosines(line.coefficients))
    asked = {i: forget[i] for i in ids} | {i: retained[i] for i in watched}
    best, lowest = found, 0.0
    rows = federation.losses(line.trial, asked, found.missing)
    for step, acceptable, row in zip(line.steps, limits, rows, strict=False):
        found = replace(found, tried=(*found.tried, step))
        after = row[: len(ids)]
        heard = ~np.isnan(after)
        harm, too_much = limit.of(watched, row[len(ids) :])
        if too_much or not heard.any():
            continue
        taken = replace(found, accepted=step, harm=harm)
        if bool((np.isfinite(after) & (after <= acceptable))[heard].all()):
            return taken
        change = float((after - before)[heard].sum())
        if change < lowest and line.rule.fallback == "best":
            best, lowest = taken, change
    return replace(found, accepted=best.accepted, harm=best.harm)


def _sides(
    line: Line, forget: Mapping[str, Loss], retained: Mapping[str, Loss], limit: HarmLimit
) -> tuple[list[str], Array, list[Array], list[str]]:
    """Return the forget clients with their losses and limits, and the retained clients that have a baseline."""
    answer, positions = line.objectives.answer, line.positions(forget)
    watched = [i for i in answer.ids if i in retained and i in limit.baseline]
    return [answer.ids[k] for k in positions], answer.losses[positions], line.limits(positions), watched
