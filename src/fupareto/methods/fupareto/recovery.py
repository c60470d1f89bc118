"""Recovery, eq. (9): train the retained clients without relearning what was forgotten.

Every variant adds rows to the clients' gradients, the guards or the anchor w - w0, and says what becomes of them:

``guard``    the directions along which the forget clients' data would be learnt again are projected out (ours)
``project``  the component along w - w0 is projected out, as FedOSD does
``printed``  w - w0 is one more objective, as the paper prints it; d·(w - w0) > 0 is a *return* to w0
``away``     its negative, which is what the paper's text asks for
``none``     nothing
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fupareto.federation.collected import Missing
from fupareto.federation.contract import Federation
from fupareto.methods.fupareto.objectives import Objectives
from fupareto.pareto import Array
from fupareto.tasks.losses import Loss


@dataclass(frozen=True)
class Recovery:
    """What keeps a recovery from relearning."""

    guarded: bool = False  # the rows are the forget clients' guards, asked for before they leave
    anchored: bool = False  # the row is the anchor
    projected: bool = False  # rows are projected out of the retained gradients
    objective: float = 0.0  # sign with which the anchor is one more objective; 0: it is none

    def rows(self, w: Tensor, w0: Tensor, guards: Tensor) -> Tensor | None:
        """Return the rows beside the clients' gradients; None where there are none, or w has not left w0."""
        return guards if self.guarded else anchor(w, w0) if self.anchored else None

    def hull(self, objectives: Objectives, equal_norms: bool) -> tuple[Array, list[int]]:
        """Return the retained gradients with the extra rows projected out or added, and who is live.

        An anchor that is one more objective is brought to the common length of the gradients; a unit vector among
        gradients of another scale would decide everything, or nothing.
        """
        live, extra = objectives.of_clients(objectives.answer.ids, live=True), objectives.extra
        if self.projected:
            return objectives.free(live, extra)[1], live
        hull = np.diag(objectives.scale)[live]
        if not self.objective or not extra or not live:
            return hull, live
        norms = np.sqrt(objectives.gram.diagonal())
        common = float((norms * objectives.scale)[live].mean()) if equal_norms else 1.0
        row = np.zeros(len(norms))
        row[extra] = self.objective * common
        return np.vstack([hull, row]), live


RECOVERIES = {
    "guard": Recovery(guarded=True, projected=True),
    "project": Recovery(anchored=True, projected=True),
    "printed": Recovery(anchored=True, objective=1.0),
    "away": Recovery(anchored=True, objective=-1.0),
    "none": Recovery(),
}


def ask_guards(federation: Federation, w: Tensor, forget: Sequence[str]) -> tuple[Tensor, Missing]:
    """Ask the forget clients for the directions that would relearn their data; also return who has no guard.

    These are the gradients of cross-entropy (the way in which they would be learnt again) and of MBS with margin 1
    (samples just over the boundary), two rows per client.
    """
    losses = (Loss("ce"), Loss("mbs", delta=1.0))
    rows, filled = torch.empty(len(losses) * len(forget), w.numel(), device=w.device), 0
    absent: Missing = {}
    for loss in losses:
        answer = federation.gradients(w, dict.fromkeys(forget, loss))
        rows[filled : filled + len(answer.ids)] = answer.gradients
        filled += len(answer.ids)
        absent |= {i: f"no guard: {reason}" for i, reason in answer.missing.items()}
    return rows[:filled], absent


def anchor(w: Tensor, w0: Tensor) -> Tensor | None:
    """Return the unit vector from w0 to w as a row; None where there is no distance yet."""
    away = w - w0
    distance = float(away.norm())
    return None if distance < 1e-12 else (away / distance)[None]
