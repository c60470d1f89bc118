"""What do the clients' gradients say together? Their answers in client space, and the search for a step."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fupareto.federation.collected import Gradients, Missing
from fupareto.federation.contract import Federation
from fupareto.pareto import Array, combine, gram, highest_acceptable, project_out, sufficient_decrease
from fupareto.pareto.direction import common_descent, equal_norms, length
from fupareto.tasks.losses import Loss

DEAD = 1e-6  # a gradient this short belongs to an objective that has reached its end


@dataclass(frozen=True)
class Objectives:
    """Losses and gradients of the clients that answered, and the Gram matrix of all rows.

    ``extra`` rows (an anchor, guards) follow the clients' rows. ``scale`` brings live gradients to one length,
    or is 1 where that is switched off; a dead gradient has scale 0.
    """

    answer: Gradients
    rows: tuple[Tensor, ...]  # the clients' gradients, and the extra rows if any, (·, parameters) each
    gram: Array
    live: NDArray[np.bool_]  # (clients + extra,); extra rows are never live: they are no client's objective
    scale: Array  # (clients + extra,)
    slack: Array  # (clients,) by how much a step may raise a client's loss

    @classmethod
    def of(
        cls, answer: Gradients, equal: bool, extra: Tensor | None = None, enough: Mapping[str, float] | None = None
    ) -> "Objectives":
        """Compute the Gram matrix, who is live (has a gradient left), and everybody's slack in the search.

        A step may raise a loss up to what is ``enough`` for its client, and that of a client without gradient by
        1e-6; other losses have to fall.
        """
        rows = (answer.gradients,) if extra is None or not len(extra) else (answer.gradients, extra)
        K = gram(rows)
        room = np.array([(enough or {}).get(i, -np.inf) for i in answer.ids]) - answer.losses
        live = np.sqrt(K.diagonal()) > DEAD
        live[len(room) :] = False
        slack = np.maximum(room, np.where(live[: len(room)], 0.0, 1e-6))
        return cls(answer, rows, K, live, equal_norms(K, live) if equal else live.astype(np.float64), slack)

    @property
    def extra(self) -> list[int]:
        """Return the positions of the extra rows."""
        return list(range(len(self.answer.ids), len(self.gram)))

    def of_clients(self, ids: Sequence[str], live: bool = False) -> list[int]:
        """Return the positions of those of ``ids`` that answered (and whose gradient is live)."""
        wanted = set(ids)
        return [k for k, i in enumerate(self.answer.ids) if i in wanted and (self.live[k] or not live)]

    def losses_of(self, ids: Sequence[str]) -> dict[str, float]:
        """Return the losses of those of ``ids`` that answered."""
        return {self.answer.ids[k]: float(self.answer.losses[k]) for k in self.of_clients(ids)}

    def forgotten(self, ids: Sequence[str], enough: float = 0.0) -> bool:
        """Return whether all of ``ids`` answered, with a loss of no more than ``enough``.

        A gradient says nothing: it may also vanish because the data are remembered perfectly.
        """
        asked = self.of_clients(ids)
        return len(asked) == len(ids) and bool((self.answer.losses[asked] <= max(enough, 1e-6)).all())

    def unfinished(self, ids: Sequence[str]) -> list[int]:
        """Return the positions of those of ``ids`` that are live and whose loss has to fall still."""
        return [k for k in self.of_clients(ids, live=True) if self.slack[k] == 0.0]

    def free(self, positions: Sequence[int], span: Sequence[int]) -> tuple[list[int], Array]:
        """Return the scaled gradients at ``positions`` with the gradients ``span`` projected out, as a hull.

        A gradient of which less than 1e-4 is left has no way to go and is left out; the others' positions come too.
        """
        projected = project_out(self.gram, positions, span)
        left = [
            length(self.gram, row) > 1e-4 * np.sqrt(self.gram[k, k])
            for k, row in zip(positions, projected, strict=True)
        ]
        kept = [k for k, free in zip(positions, left, strict=True) if free]
        return kept, self.scale[kept, None] * projected[left]

    def mean_length(self, positions: Sequence[int]) -> float:
        """Return the norm of the mean of the scaled gradients at ``positions``."""
        mean = np.zeros(len(self.gram))
        mean[positions] = self.scale[positions] / max(len(positions), 1)
        return length(self.gram, mean)

    def descent(self, hull: Array, wanted: float | None) -> Array | None:
        """Return the common descent direction of the hull, brought to the length ``wanted``.

        None at a Pareto stationary point: a zero direction would pass every test, 0 <= 0, and nothing would move.
        """
        if not len(hull):
            return None
        coefficients = common_descent(self.gram, hull)
        norm = length(self.gram, coefficients)
        if norm <= max(1e-8, 1e-7 * np.sqrt(self.gram.diagonal().max())):
            return None
        return coefficients if wanted is None else coefficients * (wanted / norm)

    def cosines(self, coefficients: Array) -> dict[str, float]:
        """Return the cosine of the direction with every client's gradient; 0 for a dead one."""
        norms = np.sqrt(self.gram.diagonal()) * length(self.gram, coefficients)
        values = np.where(self.live, self.gram @ coefficients / np.where(self.live, norms, 1.0), 0.0)
        return {i: float(c) for i, c in zip(self.answer.ids, values, strict=False)}


@dataclass(frozen=True)
class Rule:
    """When a client can live with a step (eq. 6), and in which mode its loss is computed."""

    beta: float = 1e-4
    armijo: Literal["descent", "printed"] = "descent"
    mode: str = "eval"
    seed: int = 0


@dataclass(frozen=True)
class Search:
    """What a line search found: the accepted step, and for every tried one the change of the summed losses."""

    direction: Tensor | None = None
    accepted: float | None = None
    tried: tuple[float, ...] = ()
    changes: tuple[float, ...] = ()
    harms: tuple[float, ...] = ()  # by which factor each raised the bystanders' mean loss; nan where nobody answered
    cosines: dict[str, float] = dataclasses.field(default_factory=dict)
    missing: Missing = dataclasses.field(default_factory=dict)

    @property
    def harm(self) -> float | None:
        """Return by which factor the accepted step raised the bystanders' mean loss, where that is known."""
        found = self.harms[self.tried.index(self.accepted)] if self.accepted in self.tried else np.nan
        return None if np.isnan(found) else found


def search(
    federation: Federation,
    w: Tensor,
    objectives: Objectives,
    coefficients: Array | None,
    steps: Sequence[float],
    losses: Mapping[str, Loss],
    rule: Rule,
    exhaustive: bool = False,
    bystanders: Mapping[str, Loss] | None = None,
    calm: Mapping[str, float] | None = None,
    harm: float = np.inf,
) -> Search:
    """Try ``w - step · direction`` step by step until every client of ``losses`` can live with it, eq. (6).

    A step after which the mean loss of the ``bystanders`` is more than the share ``harm`` above what it was when they
    were ``calm`` is no step at all.

    A client that vetoes a step settles it, so the others need not be asked; ``exhaustive`` asks everybody, for callers
    that need the summed losses of rejected steps. Clients that are not live keep a veto, within their slack: they must
    not be un-forgotten. Slopes are of one batch, so pseudo-gradients are divided by the number of batches in
    them.
    """
    if coefficients is None:  # no direction, nothing to search
        return Search()
    direction = combine(coefficients, objectives.rows)
    asked = objectives.of_clients(tuple(losses))
    ids = [objectives.answer.ids[k] for k in asked]
    before = objectives.answer.losses[asked]
    slopes = (objectives.gram @ coefficients)[asked] / objectives.answer.steps[asked]
    slack = objectives.slack[asked]
    others = bystanders or {}
    watching = [i for i in objectives.answer.ids if i in others and i in (calm or {})]
    quiet = np.array([(calm or {})[i] for i in watching])
    found = Search(direction, cosines=objectives.cosines(coefficients), missing={})
    tried: list[float] = []
    changes: list[float] = []
    harms: list[float] = []
    limits = [
        dict(zip(ids, highest_acceptable(before, slopes, step, rule.beta, rule.armijo, slack), strict=True))
        for step in steps
    ]
    rows = federation.losses(
        w,
        direction,
        steps,
        {i: losses[i] for i in ids} | {i: others[i] for i in watching},
        found.missing,
        rule.mode,
        rule.seed,
        limits=None if exhaustive else limits,
    )
    for step, row in zip(steps, rows, strict=False):
        after, stirred = row[: len(ids)], row[len(ids) :]
        here, heard = ~np.isnan(after), ~np.isnan(stirred)
        tried.append(step)
        harms.append(float(stirred[heard].mean() / max(quiet[heard].mean(), 1e-12)) if heard.any() else np.nan)
        if heard.any() and stirred[heard].mean() > (1.0 + harm) * quiet[heard].mean():
            changes.append(np.inf)
            continue
        changes.append(float((after - before)[here].sum()) if here.any() else np.inf)
        passed = sufficient_decrease(before[here], after[here], slopes[here], step, rule.beta, rule.armijo, slack[here])
        if here.any() and passed.all():
            found = dataclasses.replace(found, accepted=step)
            break
    return dataclasses.replace(found, tried=tuple(tried), changes=tuple(changes), harms=tuple(harms))
