"""The clients' losses and gradients together, in client space: who is live, who may veto, which directions are free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fupareto.federation.collected import Gradients
from fupareto.pareto import Array, gram, project_out
from fupareto.pareto.direction import common_descent, equal_norms, length

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
    allowance: Array  # (clients,) by how much a step may raise a client's loss

    @classmethod
    def of(
        cls, answer: Gradients, equal: bool, extra: Tensor | None = None, goals: Mapping[str, float] | None = None
    ) -> "Objectives":
        """Compute the Gram matrix, who is live (has a gradient left), and everybody's allowance in the search.

        A step may raise a loss up to its client's goal, and that of a client without gradient by 1e-6; other losses
        have to fall.
        """
        rows = (answer.gradients,) if extra is None or not len(extra) else (answer.gradients, extra)
        K = gram(rows)
        room = np.array([(goals or {}).get(i, -np.inf) for i in answer.ids]) - answer.losses
        live = np.sqrt(K.diagonal()) > DEAD
        live[len(room) :] = False
        allowance = np.maximum(room, np.where(live[: len(room)], 0.0, 1e-6))
        return cls(answer, rows, K, live, equal_norms(K, live) if equal else live.astype(np.float64), allowance)

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

    def forgotten(self, ids: Sequence[str], goal: float = 0.0) -> bool:
        """Return whether all of ``ids`` answered, with a loss of no more than ``goal``.

        A gradient says nothing: it may also vanish because the data are remembered perfectly.
        """
        asked = self.of_clients(ids)
        return len(asked) == len(ids) and bool((self.answer.losses[asked] <= max(goal, 1e-6)).all())

    def unfinished(self, ids: Sequence[str]) -> list[int]:
        """Return the positions of those of ``ids`` that are live and whose loss has to fall still."""
        return [k for k in self.of_clients(ids, live=True) if self.allowance[k] == 0.0]

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
