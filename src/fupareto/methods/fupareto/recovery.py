"""How do those who stay recover without relearning what was forgotten? By guards, or by an anchor at w0.

``guard``    the gradients along which the forget clients' data would be learnt again are projected out (ours)
``project``  the component along w - w0 is projected out, as FedOSD does
``printed``  w - w0 is one more objective, as the paper prints it; d·(w - w0) > 0 is a *return* to w0
``away``     its negative, which is what the paper's text asks for
``none``     nothing
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fupareto.federation.collected import Missing
from fupareto.federation.contract import Federation
from fupareto.methods.fupareto.objectives import Objectives
from fupareto.pareto import Array
from fupareto.tasks.losses import Loss


def guards(federation: Federation, w: Tensor, forget: Sequence[str]) -> tuple[Tensor, Missing]:
    """Ask the forget clients: which directions would relearn your data? Also say who has no guard.

    The gradients of cross-entropy (the way they would be learnt again) and of MBS with margin 1 (samples that sit
    just over the boundary), two rows per client.
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


def anchor(w: Tensor, w0: Tensor, recovery: str) -> Tensor | None:
    """Return the unit vector from w0 to w as a row; None where there is no anchor, or no distance yet."""
    away = w - w0
    distance = float(away.norm())
    return None if recovery == "none" or distance < 1e-12 else (away / distance)[None]


def recovery_direction(objectives: Objectives, recovery: str, equal_norms: bool, rescale: bool) -> Array | None:
    """Return the min-norm point of the retained gradients, the extra rows projected out or added, eq. (9).

    An anchor that is one more objective is brought to the common length of the gradients; a unit vector among
    gradients of another scale would decide everything, or nothing.
    """
    live, extra = objectives.of_clients(objectives.answer.ids, live=True), objectives.extra
    if recovery in ("guard", "project"):
        _, hull = objectives.free(live, extra)
    else:
        hull = np.diag(objectives.scale)[live]
    if recovery in ("away", "printed") and extra and live:
        norms = np.sqrt(objectives.gram.diagonal())
        common = float((norms * objectives.scale)[live].mean()) if equal_norms else 1.0
        row = np.zeros(len(norms))
        row[extra] = common if recovery == "printed" else -common
        hull = np.vstack([hull, row])
    return objectives.descent(hull, objectives.mean_length(live) if rescale else None)
