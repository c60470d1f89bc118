"""Conduct of clients in FUPareto: bounds on what they claim, and a trial of their losses against their gradients.

Every client has a veto, so one that lies can stop unlearning for all. Three rules limit that; none of them touches a
client that answers with its true losses and gradients (our addition).

*Bounds.* A gradient FAR times longer than the median of the clients with the same objective is shortened to the median;
a loss beyond every comparison is no usable answer. Where fewer than three clients share an objective the median is that
of all clients, and the bound is wider, because objectives differ.

*Trial.* After improvements in a row without a step (at first two), and before a stage ends for want of one, every
client that sent a gradient is asked for its losses at very small steps along two known directions. A loss is
continuous, and follows its slope for small steps: a client whose losses do not return to its loss at the model, or fall
or rise at another rate than its own gradient says, as it was sent, contradicts itself, and is not asked again in this
run. Steps that would take a good part of a loss away say nothing, since no loss falls below its lowest value, and one
that is nearly there may rise faster than its gradient says. If more than a third of the clients contradict themselves,
the model is at fault and nobody is accused. After a trial that accuses nobody, the next one takes twice as many rounds.

*Quorum* (an option, search.py). A client that lies consistently passes the trial; a quorum below 1 overrules it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fupareto.federation.collected import Gradients, Local, Missing, Trial
from fupareto.federation.contract import Federation
from fupareto.federation.wrappers import Wrapper
from fupareto.pareto import Array
from fupareto.tasks.losses import Loss

if TYPE_CHECKING:
    from fupareto.methods.fupareto.method import FUParetoState

FAR = 100.0  # honest clients with one objective reached 4, and 10 across objectives
FAR_ACROSS = 1e4
FEWEST = 3  # clients that have a median to compare with
FAR_LOSS = 1000.0  # of the median, and at least:
LARGE_LOSS = 100.0
SHRINKING = 8.0 ** -np.arange(4, dtype=np.float64)  # steps of a trial, as shares of the smallest trial step
NOISE = 1e-4  # of a loss, by rounding
RATES = (0.2, 5.0)  # between which a loss may fall, over what its gradient says
PART = 1 / 4  # of what a loss can fall: further than that a gradient does not tell
MOST_ACCUSED = 1 / 3


@dataclass(frozen=True)
class Shortened:
    """A gradient that was far too long: its length as it was sent, and to which it was shortened."""

    sent: float
    kept: float

    def __str__(self) -> str:
        return f"a gradient of length {self.sent:.3g} was shortened to {self.kept:.3g}"


class Watched(Wrapper):
    """A federation for one round of FUPareto: distrusted clients are not asked, and claims are bounded.

    Args:
        inner: The clients.
        distrusted: Clients that are not asked any more, with the reason.
    """

    def __init__(self, inner: Federation, distrusted: Mapping[str, str]) -> None:
        super().__init__(inner)
        self.distrusted = distrusted
        self.bounded: dict[str, Shortened] = {}
        self.answer: Gradients | None = None  # the last gradients, with the question:
        self.objectives: dict[str, Loss] = {}
        self.how: dict[str, Any] = {}

    def gradients(
        self, w: Tensor, objectives: Mapping[str, Loss], pseudo: Local | None = None, **how: Any
    ) -> Gradients:
        """Ask the clients that are trusted, and bound their answers."""
        asked = {i: loss for i, loss in objectives.items() if i not in self.distrusted}
        found, shortened = bounded(self.inner.gradients(w, asked, pseudo, **how), asked)
        self.bounded |= shortened
        found = replace(
            found, missing={**found.missing, **{i: self.distrusted[i] for i in objectives if i not in asked}}
        )
        self.answer, self.objectives, self.how = found, asked, how
        return found


def bounded(answer: Gradients, objectives: Mapping[str, Loss]) -> tuple[Gradients, dict[str, Shortened]]:
    """Return the answer with far too long gradients shortened, and without far too large losses.

    Args:
        answer: Losses and gradients of the clients.
        objectives: Loss of every client.

    Returns:
        The answer, and the clients whose gradients were shortened.
    """
    if not answer.ids:
        return answer, {}
    names = [objectives[i].name for i in answer.ids]
    norms = torch.linalg.vector_norm(answer.gradients, dim=1).double().cpu().numpy() / answer.steps
    usual, far = _usual(norms, names)
    typical, _ = _usual(answer.losses, names)
    long = norms > far * usual
    lost = (answer.losses > LARGE_LOSS) & (answer.losses > FAR_LOSS * typical) & (typical > 0)
    if not long.any() and not lost.any():
        return answer, {}
    gradients = answer.gradients.clone()
    shortened = {answer.ids[k]: Shortened(norms[k], usual[k]) for k in np.flatnonzero(long)}
    for k in np.flatnonzero(long):
        gradients[k] *= usual[k] / norms[k]
    kept = np.flatnonzero(~lost)
    reasons = {
        answer.ids[k]: f"answered with a loss of {answer.losses[k]:.3g}, beyond comparison with {typical[k]:.3g}"
        for k in np.flatnonzero(lost)
    }
    ids = tuple(answer.ids[k] for k in kept)
    rows = gradients[torch.from_numpy(kept).to(gradients.device)]
    found = Gradients(ids, answer.losses[kept], rows, answer.steps[kept], {**answer.missing, **reasons})
    return found, shortened


def _usual(values: Array, names: Sequence[str]) -> tuple[Array, Array]:
    """Return for every client the median of those with its objective, and how far from it is too far."""
    usual, far = np.full(len(values), np.inf), np.full(len(values), FAR_ACROSS)
    for name in set(names):
        same = [k for k, other in enumerate(names) if other == name]
        if len(same) >= FEWEST:
            usual[same], far[same] = np.median(values[same]), FAR
        elif len(values) >= FEWEST:
            usual[same] = np.median(values)
    return np.where(usual > 0, usual, np.inf), far


def reviewed(watched: Watched, before: "FUParetoState", after: "FUParetoState", smallest: float) -> "FUParetoState":
    """Return the state after a round with what is known of the clients' conduct; hold a trial when one is due.

    Args:
        watched: The federation of this round.
        before: State before the round.
        after: State after it.
        smallest: Smallest trial step of the round.
    """
    told = {i: str(shortened) for i, shortened in watched.bounded.items()}
    record = {**after.record, **({"bounded": told} if told else {})}
    searched = after.phase in ("improve", "recover") and watched.answer is not None
    if not searched or after.record.get("note"):
        return replace(after, record=record)
    refused = 0 if after.record["step"] is not None else before.refused + 1
    ends = after.ended and not before.ended
    if not ends and refused < before.patience:
        return replace(after, record=record, refused=refused)
    found = trial(watched, before, smallest)
    record["trial"] = found
    if not found:
        return replace(after, record=record, refused=0, patience=2 * before.patience)
    reasons = {i: f"distrusted since round {after.round}: {reason}" for i, reason in found.items()}
    distrusted = {**before.distrusted, **reasons}
    return replace(after, record=record, distrusted=distrusted, refused=0, answered=(), ended=False)


def trial(watched: Watched, state: "FUParetoState", smallest: float) -> dict[str, str]:
    """Return the clients whose losses contradict their gradients, with the reason."""
    answer = watched.answer
    assert answer is not None
    rows = answer.gradients  # one at a time in float64: a second copy of all may not fit in memory
    norms = torch.stack([row.double().norm() for row in rows])
    forget = torch.tensor([i in state.forget for i in answer.ids], device=rows.device)
    accused: dict[str, str] = {}
    for side in (forget, ~forget):
        if not bool((side & (norms > 0)).any()):
            continue
        units = (rows[k].double() / norms[k].clamp(min=1e-12) for k in side.nonzero().flatten().tolist())
        mean = sum(units, torch.zeros_like(state.w, dtype=torch.float64)) / int(side.sum())
        direction = (mean * norms.median()).float()
        slopes = np.array([float(row.double() @ direction.double()) for row in rows]) / answer.steps
        slopes *= [s.sent / s.kept if (s := watched.bounded.get(i)) else 1.0 for i in answer.ids]  # as it was sent
        accused |= _contradictions(watched, state.w, direction, slopes, smallest)
    return accused if len(accused) <= MOST_ACCUSED * len(answer.ids) else {}


def _contradictions(watched: Watched, w: Tensor, direction: Tensor, slopes: Array, smallest: float) -> dict[str, str]:
    answer, missing = watched.answer, Missing()
    assert answer is not None
    steps: Array = np.float64(smallest) * SHRINKING
    how = {key: watched.how[key] for key in ("mode", "seed") if key in watched.how}
    asked = {i: watched.objectives[i] for i in answer.ids}
    rows = watched.inner.losses(Trial(w, direction, tuple(steps.tolist()), **how), asked, missing)
    table = np.array(list(rows)).T  # (clients, steps)
    found = {}
    for i, loss, slope, batches, after in zip(answer.ids, answer.losses, slopes, answer.steps, table, strict=True):
        known = float(slope) if batches == 1 else None
        reason = contradiction(float(loss), known, steps, after, asked[i].lowest)
        if i not in missing and reason:
            found[i] = reason
    return found


def contradiction(loss: float, slope: float | None, steps: Array, after: Array, lowest: float = 0.0) -> str | None:
    """Return how losses at shrinking steps contradict the loss and its slope, or None.

    Args:
        loss: Loss at the model.
        slope: By how much the loss falls per step, as the gradient says; None if that is not known exactly.
        steps: Steps, each a fraction of the one before.
        after: Losses at the steps.
        lowest: The lowest value that the loss can have.
    """
    noise, part = NOISE * max(abs(loss), 1.0), PART * (loss - lowest)
    fall = np.zeros(len(steps)) if slope is None else steps * slope
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(after - (loss - fall))
        if not np.isfinite(after[-1]) or (error[-1] > noise and error[-1] > 0.5 * error[0]):
            return f"a loss of {after[-1]:.3g} after a step of {steps[-1]:.1e} from {loss:.3g} is no continuous loss"
        clear = np.flatnonzero((np.abs(fall) > 20 * noise) & (fall <= part))
        if len(clear) < 2 or not np.isfinite(after[clear]).all():
            return None
        wider, rate = ((loss - after[k]) / fall[k] for k in clear[-2:])
    slowest, fastest = RATES
    if -fall[clear[-1]] > part:
        fastest = np.inf
    if slowest <= rate <= fastest or abs(1 - rate) <= 0.5 * abs(1 - wider):
        return None
    return f"its loss falls {rate:.2f} times as fast as its gradient says"
