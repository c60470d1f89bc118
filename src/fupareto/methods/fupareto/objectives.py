"""Losses and gradients of the clients in client space: live objectives, allowances, projected gradients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fupareto.federation.collected import Gradients
from fupareto.pareto import Array, gram, project_out
from fupareto.pareto.direction import Hull, common_descent, equal_norms, length

DEAD = 1e-6  # an objective with a gradient of at most this norm is not live


@dataclass(frozen=True)
class Objectives:
    """Losses and gradients of the clients that answered, and the Gram matrix of all rows.

    Extra rows (an anchor, guards) follow the clients' rows.

    Attributes:
        answer: Losses and gradients as they were answered.
        rows: The clients' gradients, and the extra rows if any, (·, parameters) each.
        gram: Gram matrix of all rows (clients + extra, clients + extra).
        live: Which gradients are not (almost) zero (clients + extra,); False for extra rows, which are not objectives.
        scale: Factors that bring live gradients to one length, or 1 where that is switched off; 0 for rows that are not
            live (clients + extra,).
        allowance: By how much a step may raise each client's loss (clients,).
    """

    answer: Gradients
    rows: tuple[Tensor, ...]
    gram: Array
    live: NDArray[np.bool_]
    scale: Array
    allowance: Array

    @classmethod
    def of(
        cls, answer: Gradients, equal: bool, extra: Tensor | None = None, goals: Mapping[str, float] | None = None
    ) -> "Objectives":
        """Compute the Gram matrix, the live objectives, and the allowances of the line search.

        A step may raise a client's loss up to its goal, and by 1e-6 if the client is not live; all other losses must
        fall.

        Args:
            answer: Losses and gradients of the clients.
            equal: Whether to scale live gradients to one length.
            extra: Extra rows (·, parameters).
            goals: Largest loss that counts as forgotten, by client.
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
        """Positions of the extra rows."""
        return list(range(len(self.answer.ids), len(self.gram)))

    def of_clients(self, ids: Sequence[str], live: bool = False) -> list[int]:
        """Return the positions of those of ``ids`` that answered, with ``live`` only those that are live."""
        wanted = set(ids)
        return [k for k, i in enumerate(self.answer.ids) if i in wanted and (self.live[k] or not live)]

    def losses_of(self, ids: Sequence[str]) -> dict[str, float]:
        """Return the losses of those of ``ids`` that answered."""
        return {self.answer.ids[k]: float(self.answer.losses[k]) for k in self.of_clients(ids)}

    def forgotten(self, ids: Sequence[str], goal: float = 0.0) -> bool:
        """Return whether all of ``ids`` answered with a loss of at most ``goal``.

        The gradient cannot tell: it also vanishes where a model fits the data perfectly.
        """
        asked = self.of_clients(ids)
        return len(asked) == len(ids) and bool((self.answer.losses[asked] <= max(goal, 1e-6)).all())

    def unfinished(self, ids: Sequence[str]) -> list[int]:
        """Return the positions of those of ``ids`` that are live and whose loss must still fall."""
        return [k for k in self.of_clients(ids, live=True) if self.allowance[k] == 0.0]

    def free(self, positions: Sequence[int], span: Sequence[int]) -> tuple[list[int], Array]:
        """Return the scaled gradients at ``positions`` with the gradients at ``span`` projected out.

        A gradient of which less than 1e-4 remains after the projection is left out.

        Returns:
            The positions of the remaining gradients, and their hull.
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

    def descent(self, hull: Hull | Array, wanted: float | None) -> Array | None:
        """Return the common descent direction of the hull, scaled to the length ``wanted``.

        None at a Pareto stationary point: a zero direction would satisfy eq. (6) for every step.
        """
        if not hull.shape[0]:
            return None
        coefficients = common_descent(self.gram, hull)
        norm = length(self.gram, coefficients)
        if norm <= max(1e-8, 1e-7 * np.sqrt(self.gram.diagonal().max())):
            return None
        return coefficients if wanted is None else coefficients * (wanted / norm)

    def cosines(self, coefficients: Array) -> dict[str, float]:
        """Return the cosine of the direction with every client's gradient; 0 for one that is not live."""
        norms = np.sqrt(self.gram.diagonal()) * length(self.gram, coefficients)
        values = np.where(self.live, self.gram @ coefficients / np.where(self.live, norms, 1.0), 0.0)
        return {i: float(c) for i, c in zip(self.answer.ids, values, strict=False)}
