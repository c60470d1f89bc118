"""FedOSD (Pan et al., AAAI 2025): the steepest unlearning direction that is orthogonal to every retained gradient.

Forget clients minimise the unlearning cross-entropy, retained clients the cross-entropy; all clients send the
pseudo-gradient of a local epoch. The update is the mean forget gradient with the retained gradients projected out,
scaled to its original length. Post-training removes from every retained gradient the component along w - w0, so that
the model does not return to w0.

Faithfulness: from the authors' code. Its pseudo-inverse keeps the singular values that it is meant to drop; ours
drops them, relative to the largest. Its first post-training round uses the unlearning rate; ours the recovery rate.

Storage: w0. Communication: one model down and one gradient up per client and round.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from fupareto.federation.averaging import coordinatewise
from fupareto.federation.contract import Federation
from fupareto.methods.staged import CE, Staged, StagedState, moved, rows, stepped
from fupareto.pareto import combine, gram, project_out
from fupareto.pareto.direction import length
from fupareto.tasks.losses import Loss

VANISHED = "no component of the forget gradients is orthogonal to the retained ones; the model is unchanged"


@dataclass(frozen=True)
class FedOSD(Staged):
    """Unlearn orthogonally to the retained gradients; recover without returning to w0."""

    name: ClassVar[str] = "fedosd"
    from_training: ClassVar[tuple[str, ...]] = ("batch_size",)

    lr: float = 0.01
    recovery_lr: float = 1e-4

    def unlearn(self, federation: Federation, state: StagedState) -> StagedState:
        """Step along the orthogonal steepest descent direction."""
        local = self.local(state, self.lr)
        objectives = {**dict.fromkeys(state.forget, Loss("uce")), **dict.fromkeys(state.retained, CE)}
        answer = federation.gradients(state.w, objectives, pseudo=local)
        forget, retained = rows(answer, state.forget), rows(answer, state.retained)
        direction = orthogonal_steepest(answer.gradients, forget, retained) if forget and retained else None
        vanished = bool(forget and retained) and direction is None
        return stepped(state, local.lr, answer, direction, **({"note": VANISHED} if vanished else {}))

    def recover(self, federation: Federation, state: StagedState) -> StagedState:
        """Step along the mean of the retained gradients, without their components along w - w0."""
        local = self.local(state, self.recovery_lr)
        answer = federation.gradients(state.w, dict.fromkeys(state.retained, CE), pseudo=local)
        record = {"lr": local.lr, "missing": answer.missing}
        if not answer.ids:
            return moved(state, "recover", None, record)
        rows = without_(answer.gradients, state.w - state.w0)
        direction = rows.mean(0) if self.aggregation == "mean" else coordinatewise(rows, self.aggregation)
        return moved(state, "recover", state.w - local.lr * direction, record)


def orthogonal_steepest(gradients: Tensor, forget: list[int], retained: list[int]) -> Tensor | None:
    """Return the mean forget gradient, the retained ones projected out, at its original length; None if it vanishes."""
    K = gram(gradients)
    mean = np.zeros(len(K))
    mean[forget] = 1.0 / len(forget)
    projected = project_out(K, forget, retained).mean(0)
    before, after = length(K, mean), length(K, projected)
    return None if after <= 1e-6 * before or before == 0.0 else combine(projected * (before / after), gradients)


def without_(gradients: Tensor, back: Tensor) -> Tensor:
    """Remove the component along ``back`` from every gradient, in place, and restore the length of the gradient."""
    norm = back.norm()
    if float(norm) < 1e-12:
        return gradients
    unit = back / norm
    along, old = gradients @ unit, gradients.norm(dim=1)
    for k, gradient in enumerate(gradients):  # row by row: a second copy of all may not fit in memory
        gradient -= along[k] * unit
        new = gradient.norm()
        if new > 1e-6 * old[k]:
            gradient.mul_(old[k]).div_(new)
        else:
            gradient.zero_()
    return gradients
