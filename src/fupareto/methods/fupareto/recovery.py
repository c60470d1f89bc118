"""Recovery, eq. (9): train the retained clients without relearning what was forgotten.

The variants add rows to the clients' gradients, the guards or the anchor w - w0, and use them differently:

``guard``    directions along which the forget clients' data would be relearned are projected out (our addition)
``project``  the component along w - w0 is projected out, as in FedOSD
``printed``  w - w0 is one more objective, as the paper prints it; d·(w - w0) > 0 is a *return* to w0
``away``     its negative is one more objective, as the paper's text asks for
``none``     no rows
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fupareto.federation.collected import Missing
from fupareto.federation.contract import Federation
from fupareto.methods.fupareto.objectives import Objectives
from fupareto.pareto import Array
from fupareto.pareto.direction import Hull, single, with_row
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class Recovery:
    """A variant of recovery.

    Attributes:
        guarded: Whether the extra rows are the guards of the forget clients.
        anchored: Whether the extra row is the anchor.
        projected: Whether the rows are projected out of the retained gradients.
        objective: Sign of the anchor as one more objective; 0 if it is not an objective.
    """

    guarded: bool = False
    anchored: bool = False
    projected: bool = False
    objective: float = 0.0

    def rows(self, w: Tensor, w0: Tensor, guards: Tensor) -> Tensor | None:
        """Return the extra rows; None if there are none, or if w is still w0."""
        return guards if self.guarded else anchor(w, w0) if self.anchored else None

    def hull(self, objectives: Objectives, equal_norms: bool) -> tuple[Hull | Array, list[int]]:
        """Return the hull of a recovery step, and the positions of the live clients.

        The hull contains the retained gradients, with the extra rows projected out or added. An anchor that is an
        objective is scaled to the common length of the gradients; as a unit vector among gradients of another scale it
        would dominate the direction, or have no effect.
        """
        live, extra = objectives.of_clients(objectives.answer.ids, live=True), objectives.extra
        if self.projected:
            return objectives.free(live, extra)[1], live
        hull = single(objectives.scale, live)
        if not self.objective or not extra or not live:
            return hull, live
        norms = np.sqrt(objectives.gram.diagonal())
        common = float((norms * objectives.scale)[live].mean()) if equal_norms else 1.0
        row = np.zeros(len(norms))
        row[extra] = self.objective * common
        return with_row(hull, row), live


RECOVERIES = {
    "guard": Recovery(guarded=True, projected=True),
    "project": Recovery(anchored=True, projected=True),
    "printed": Recovery(anchored=True, objective=1.0),
    "away": Recovery(anchored=True, objective=-1.0),
    "none": Recovery(),
}


GUARDS = {"ce": Loss("ce"), "mbs": Loss("mbs", delta=1.0)}  # losses whose gradients are guards


def ask_guards(
    federation: Federation, w: Tensor, clients: Mapping[str, Sequence[str]]
) -> tuple[Tensor, dict[str, list[str]], Missing]:
    """Return the guards, directions that would relearn the forget clients' data, and the clients that have none.

    A client's guards are two rows: its gradients of cross-entropy, and of MBS with margin 1, which covers samples just
    beyond the decision boundary.

    Args:
        federation: The clients.
        w: Model with which recovery begins.
        clients: Forget clients to ask, by the guard's name in :data:`GUARDS`.

    Returns:
        The guards as rows; the clients that gave them, by the guard's name, in the order of the rows; those missing.
    """
    rows, filled = torch.empty(sum(map(len, clients.values())), w.numel(), device=w.device), 0
    found, absent = dict[str, list[str]](), Missing()
    for name, ids in clients.items():
        answer = federation.gradients(w, dict.fromkeys(ids, GUARDS[name]))
        rows[filled : filled + len(answer.ids)] = answer.gradients
        filled += len(answer.ids)
        found[name] = list(answer.ids)
        absent |= {i: f"no guard: {reason}" for i, reason in answer.missing.items()}
    return rows[:filled], found, absent


def anchor(w: Tensor, w0: Tensor) -> Tensor | None:
    """Return the unit vector from w0 to w as a row; None if the two are equal."""
    away = w - w0
    distance = float(away.norm())
    return None if distance < 1e-12 else (away / distance)[None]
