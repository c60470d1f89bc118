"""Line search over trial steps (Step Size Line Search, eq. 6).

In an improvement every client has a veto, and the search starts from an enlarged step. In an expansion only the forget
clients have a veto, and the rise of the retained clients' mean loss is limited.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fupareto.federation.collected import Missing, Trial
from fupareto.federation.contract import Federation
from fupareto.methods.fupareto.objectives import Objectives
from fupareto.pareto import Array, accepted, combine, highest_acceptable
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class Rule:
    """Condition on which a client accepts a step, eq. (6).

    Attributes:
        beta: Factor of the sufficient decrease.
        armijo: Sign of the sufficient decrease.
        mode: Mode of the module when losses are computed, "eval" or "train".
        seed: Seed of dropout in mode "train".
        fallback: What an expansion does if no step is accepted: take the best one, or skip.
        quorum: Share of the clients that answered which must accept a step.
    """

    beta: float = 1e-4
    armijo: Literal["descent", "printed"] = "descent"
    mode: str = "eval"
    seed: int = 0
    fallback: Literal["best", "skip"] = "best"
    quorum: float = 1.0

    def carried(self, accepted: NDArray[np.bool_]) -> bool:
        """Return whether enough of the clients that answered accept a step."""
        return bool(len(accepted)) and int(accepted.sum()) >= math.ceil(self.quorum * len(accepted) - 1e-9)


@dataclass(frozen=True)
class Line:
    """A direction and the trial steps along it.

    Attributes:
        w: The model.
        objectives: Losses and gradients at ``w``.
        coefficients: The direction, as coefficients over the rows of ``objectives``.
        steps: The trial steps, in the order in which they are tried.
        rule: Condition of acceptance.
        lacking: Clients that have not been sent ``w`` in this round.
    """

    w: Tensor
    objectives: Objectives
    coefficients: Array
    steps: tuple[float, ...]
    rule: Rule
    lacking: tuple[str, ...] = ()

    @cached_property
    def direction(self) -> Tensor:
        """The direction as a vector of the model's size."""
        return combine(self.coefficients, self.objectives.rows)

    @property
    def trial(self) -> Trial:
        """The trial models whose losses are asked for."""
        return Trial(self.w, self.direction, self.steps, self.rule.mode, self.rule.seed, self.lacking)

    def positions(self, losses: Mapping[str, Loss]) -> list[int]:
        """Return the positions of the clients in ``losses`` whose gradients are known."""
        return self.objectives.of_clients(tuple(losses))

    def limits(self, positions: list[int]) -> list[Array]:
        """Return for every step the largest loss that each client accepts.

        Slopes are per batch, so pseudo-gradients are divided by their number of batches. Clients that are not live have
        a veto too, beyond their allowance: what they have forgotten must not be relearned.
        """
        answer = self.objectives.answer
        before, allowance = answer.losses[positions], self.objectives.allowance[positions]
        slopes = (self.objectives.gram @ self.coefficients)[positions] / answer.steps[positions]
        return [
            highest_acceptable(before, slopes, step, self.rule.beta, self.rule.armijo, allowance) for step in self.steps
        ]


@dataclass(frozen=True)
class Found:
    """Result of a line search.

    Attributes:
        direction: The direction that was searched.
        accepted: The accepted step; None if there is none.
        tried: Steps that were tried.
        cosines: Cosine of the direction with every client's gradient.
        missing: Clients that did not answer, with the reason.
        vetoed: The client that rejected a step last; it is asked first in the next search.
        harm: Factor by which the step raised the retained clients' mean loss above the baseline, if known.
        vetoes: Steps that each client rejected. Where one veto is enough, only the first one counts.
    """

    direction: Tensor | None = None
    accepted: float | None = None
    tried: tuple[float, ...] = ()
    cosines: dict[str, float] = field(default_factory=dict)
    missing: Missing = field(default_factory=dict)
    vetoed: str = ""
    harm: float | None = None
    vetoes: dict[str, list[float]] = field(default_factory=dict)

    def veto(self, ids: Iterable[str], step: float) -> None:
        """Record the clients that rejected a step."""
        for i in ids:
            self.vetoes.setdefault(i, []).append(step)


@dataclass(frozen=True)
class HarmLimit:
    """Limit on the rise of the retained clients' mean loss by expansions.

    Attributes:
        baseline: Losses before the expansions since the last improvement, by client.
        share: Share by which the mean loss may exceed the baseline.
    """

    baseline: Mapping[str, float]
    share: float

    def of(self, ids: list[str], losses: Array) -> tuple[float | None, bool]:
        """Return the mean loss relative to the baseline, None if no client answered, and whether it is too large."""
        answered = ~np.isnan(losses)
        if not answered.any():
            return None, False
        baseline, now = np.array([self.baseline[i] for i in ids])[answered].mean(), losses[answered].mean()
        return float(now / max(baseline, 1e-12)), bool(now > (1.0 + self.share) * baseline)


def search_improvement(
    federation: Federation,
    line: Line,
    losses: Mapping[str, Loss],
    first: str = "",
    goals: Mapping[str, float] | None = None,
) -> Found:
    """Search for the first step that every client accepts, or as many as the quorum asks for.

    Where one veto rejects a step, the remaining clients are not asked about it.

    Args:
        federation: The clients.
        line: Direction and trial steps.
        losses: Loss of every client.
        first: The client to ask first.
        goals: Clients whose gradients are not known, with the largest loss that they accept.
    """
    positions, goals = line.positions(losses), goals or {}
    ids = [*(line.objectives.answer.ids[k] for k in positions), *goals]
    limits = [np.concatenate([limit, list(goals.values())]) for limit in line.limits(positions)]
    found = Found(line.direction, cosines=line.objectives.cosines(line.coefficients), vetoed=first)
    by_client = [dict(zip(ids, limit.tolist(), strict=True)) for limit in limits]
    stop = by_client if line.rule.quorum == 1.0 else None  # where one veto is enough, nobody else is asked
    rows = federation.losses(line.trial, {i: losses[i] for i in ids}, found.missing, stop, first)
    for step, limit, after in zip(line.steps, limits, rows, strict=False):
        found = replace(found, tried=(*found.tried, step))
        answered = ~np.isnan(after)
        rejected = answered & ~accepted(after, limit)
        if line.rule.carried(~rejected[answered]):
            return replace(found, accepted=step)
        vetoes = [i for i, veto in zip(ids, rejected, strict=True) if veto]
        found = replace(found, vetoed=found.vetoed if found.vetoed in vetoes else next(iter(vetoes), found.vetoed))
        found.veto(vetoes if stop is None else [i for i in vetoes if i == found.vetoed], step)
    return found


def search_expansion(
    federation: Federation,
    line: Line,
    forget: Mapping[str, Loss],
    retained: Mapping[str, Loss],
    limit: HarmLimit,
) -> Found:
    """Search for the first step that every forget client accepts and that stays within the limit on harm.

    If there is none, the fallback ``best`` takes the step within the limit that lowers the sum of the forget clients'
    losses most, if one lowers it.

    Args:
        federation: The clients.
        line: Direction and trial steps.
        forget: Loss of every forget client.
        retained: Loss of every retained client that the limit applies to.
        limit: Limit on the rise of the retained clients' mean loss.
    """
    ids, before, limits, watched = _sides(line, forget, retained, limit)
    found = Found(line.direction, cosines=line.objectives.cosines(line.coefficients))
    asked = {i: forget[i] for i in ids} | {i: retained[i] for i in watched}
    best, lowest = found, 0.0
    rows = federation.losses(line.trial, asked, found.missing)
    for step, acceptable, row in zip(line.steps, limits, rows, strict=False):
        found = replace(found, tried=(*found.tried, step))
        after = row[: len(ids)]
        answered = ~np.isnan(after)
        harm, too_much = limit.of(watched, row[len(ids) :])
        if too_much or not answered.any():
            continue
        taken = replace(found, accepted=step, harm=harm)
        content = accepted(after, acceptable)
        found.veto(itertools.compress(ids, answered & ~content), step)
        if line.rule.carried(content[answered]):
            return taken
        change = float((after - before)[answered].sum())
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
