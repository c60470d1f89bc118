"""FUPareto (arXiv 2602.01852): renewal, Pareto improvement, Pareto expansion, recovery.

*Renewal* (our addition, renew.py) comes first: it mixes w0 with a fresh model and trains it with the retained clients.
Improvement and expansion alone end close to w0, and what they hide comes back when the retained clients train on.

Then two steps alternate. *Improvement* moves along a direction that lowers every client's objective at once, the forget
clients' MBS loss and the retained clients' cross-entropy, until a line search finds no step that every client accepts:
the model is near the Pareto front. *Expansion* then lowers the forget clients' losses along a direction orthogonal to
every retained client's gradient, and improvement resumes. Such a step preserves the retained losses to first order
only, so expansions may not double the retained clients' mean loss before an improvement succeeds again (our addition,
``expansion_harm``; without it a base rate that is too large can destroy a model in two rounds). After renewal there is
nothing left to drive out: only the retained clients' objectives are improved, and the forget clients' veto keeps their
losses where renewal left them, but for a hundredth of the way back to w0 (veto.py). *Recovery*, if there are rounds for
it, trains the retained clients without relearning what was forgotten.

No rate has to be tuned: the first search is so wide that the rate to start from does not matter, and the rate then
follows the steps that clients accept.

With ``participation`` below 1, all forget clients and a random share of the retained clients are asked in each round,
in both stages. An expansion follows a failed improvement and uses the same sample, because the model is near the Pareto
front of these clients only. The limit on the harm of expansions covers all samples (``baseline_losses``), and so does
the count of rounds without a step, after which the rate is halved.

Options, the paper's literal reading and the ablations are in options.py.

Storage: w0, the momentum and the mean of renewal, and two gradients per forget client during recovery. Communication
per round and participating client: one model down and one up in renewal; later one model down, one gradient up, one
direction down; the line search adds scalars only.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fupareto.federation.collected import Local, Missing
from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.methods.base import State
from fupareto.methods.fupareto.conduct import Watched, reviewed
from fupareto.methods.fupareto.expansion import baseline_losses, expansion_hull
from fupareto.methods.fupareto.objectives import Objectives
from fupareto.methods.fupareto.options import FUParetoOptions
from fupareto.methods.fupareto.recovery import GUARDS, ask_guards
from fupareto.methods.fupareto.search import Found, HarmLimit, Line, Rule, search_expansion, search_improvement
from fupareto.methods.fupareto.veto import ask_goals
from fupareto.methods.renew import RenewState
from fupareto.pareto import Array, guidance, trial_steps
from fupareto.pareto.direction import Hull, single, with_row
from fupareto.tasks.losses import Loss

CE = Loss("ce")


@dataclass(frozen=True)
class FUParetoState(RenewState):
    """State of FUPareto; ``rate`` is the base rate of the current phase."""

    guard: Tensor = field(default_factory=lambda: torch.empty(0))  # (guards, parameters), see recovery.py
    guarded: dict[str, list[str]] = field(default_factory=dict)  # forget clients with a guard, by the guard's loss
    measured: bool = False  # whether an accepted step has set the rate
    stalled: int = 0  # consecutive rounds without a step
    sample: tuple[str, ...] = ()  # retained clients that take part in this round
    expand_next: bool = False  # whether the next round is an expansion
    baseline: dict[str, float] = field(
        default_factory=dict
    )  # retained losses before the expansions since an improvement
    harm: float = 1.0  # factor by which those expansions raised them
    goals: dict[str, float] = field(default_factory=dict)  # largest forget losses that are accepted after renewal
    ended: bool = False  # whether improvement after renewal has no further step
    answered: tuple[str, ...] = ()  # clients that answered with gradients at w, if none is missing
    vetoed: str = ""  # the client that rejected a trial step last; it is asked first
    refused: int = 0  # consecutive searches without an accepted step since the last trial, see conduct.py
    patience: int = 2  # of them before the next trial
    distrusted: dict[str, str] = field(default_factory=dict)  # clients that are not asked any more, with the reason


@dataclass(frozen=True)
class FUPareto(FUParetoOptions):
    """Renew, then improve without relearning; or improve, expand and recover as in the paper."""

    name: ClassVar[str] = "fupareto"
    state: ClassVar[type[State]] = FUParetoState

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> FUParetoState:
        """Start from ``w0`` with renewal, or with an improvement where there is none."""
        forget, retained = self.sides(federation, request)
        rate = self.renew.trained.lr if self.renew else self.lr
        return FUParetoState(w=w0, forget=forget, retained=retained, seed=seed, w0=w0, rate=rate)

    def step(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """Run one round: renew, improve, expand after a failed improvement, or recover; end what is over."""
        if self.renew and not self.renew.over(state):
            return self._end_renewal(self.renew.step(federation, state))
        keep = state.expand_next and state.sample
        state = dataclasses.replace(state, sample=keep or state.sampled(self.participation))
        watched, smallest = Watched(federation, state.distrusted), self._eta(state) * 2.0**-self.s
        if state.stage == "recovered":
            return self._end_recovery(reviewed(watched, state, self._recover(watched, state), smallest))
        unlearn = self._improve_renewed if self.renew else self._unlearn
        return self._end_unlearning(watched, reviewed(watched, state, unlearn(watched, state), smallest))

    def _end_renewal(self, state: FUParetoState) -> FUParetoState:
        """Go on with improvement after the last round of renewal."""
        if not state.done:
            return state
        none = torch.empty(0)
        return dataclasses.replace(state, done=False, rate=self.lr, started=state.round, velocity=none, mean=none)

    def _improve_renewed(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """Take an improvement step after renewal: the retained clients' objectives fall, no forget loss returns.

        Renewal has removed what retained clients do not know, so the forget clients drive no further: they would be
        forgotten beyond a model that never knew them. They keep their veto, for which they send losses, no gradients.
        """
        known, (state, missing) = tuple(state.goals), self._with_goals(federation, state)
        losses = dict.fromkeys(state.sample, CE)
        objectives = self._ask(federation, state, losses if state.goals else {})
        for side, there in (("forget", state.goals), ("retained", objectives.answer.ids)):
            if not there:
                stayed = self._stay(state, "improve", objectives, side, missing)
                return stayed if side == "retained" else dataclasses.replace(stayed, ended=True)
        direction = self._descent(objectives, *self._improvement_hull(state, objectives))
        line = self._line(state, objectives, direction, self.rating.steps(self._eta(state), state.measured))
        asked = {**losses, **dict.fromkeys(state.goals, self.forgetting)}
        found = Found()
        if line is not None:
            line = dataclasses.replace(line, lacking=known)  # the others were just asked for their goals
            found = search_improvement(federation, line, asked, state.vetoed, state.goals)
        found = dataclasses.replace(found, missing={**missing, **found.missing})
        moved = self._moved(state, "improve", objectives, found)
        if found.accepted is not None:
            return moved
        return dataclasses.replace(moved, measured=False, ended=not state.measured)  # after a narrow search a wide one

    def _with_goals(self, federation: Federation, state: FUParetoState) -> tuple[FUParetoState, Missing]:
        """Ask the forget clients for the largest losses that they accept; one that is absent is asked again."""
        lacking = {i: self.forgetting for i in state.forget if i not in state.goals}
        goals, missing = ask_goals(federation, state.w, state.w0, lacking)
        return dataclasses.replace(state, goals={**state.goals, **goals}), missing

    # Improvement and expansion ---------------------------------------------------------------------------------

    def _unlearn(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """Improve, or expand if the last improvement failed; change nothing if no client of one side answered."""
        losses = {**dict.fromkeys(state.forget, self.forgetting), **dict.fromkeys(state.sample, CE)}
        objectives = self._ask(federation, state, losses)
        for side, ids in (("forget", state.forget), ("retained", state.retained)):
            if not objectives.of_clients(ids):
                stayed = self._stay(state, "expand" if state.expand_next else "improve", objectives, side)
                return dataclasses.replace(stayed, ended=state.distrusted.keys() >= set(ids))  # nobody will come back
        step = self._expand if state.expand_next else self._improve
        return step(federation, state, objectives, losses)

    def _improve(
        self, federation: Federation, state: FUParetoState, objectives: Objectives, losses: dict[str, Loss]
    ) -> FUParetoState:
        """Take a Pareto improvement step: along the common descent direction, accepted by every client."""
        direction = self._descent(objectives, *self._improvement_hull(state, objectives))
        line = self._line(state, objectives, direction, self.rating.steps(self._eta(state), state.measured))
        found = Found() if line is None else search_improvement(federation, line, losses, state.vetoed)
        at_front = found.accepted is None and bool(objectives.unfinished(state.forget))
        return self._moved(state, "improve", objectives, found, expand_next=at_front)

    def _improvement_hull(self, state: FUParetoState, objectives: Objectives) -> tuple[Hull, list[int]]:
        """Return the hull of an improvement, eqs. (4) and (5): all live gradients and the fairness guidance."""
        live = objectives.of_clients(objectives.answer.ids, live=True)
        hull = single(objectives.scale, live)
        losses, preference = objectives.answer.losses, np.ones(len(objectives.answer.ids))
        if self.guidance == "forget-first":
            preference[objectives.of_clients(state.forget)] = 0.0
        h = None if self.guidance == "off" else guidance(losses, preference, self.guidance_scale)
        return hull if h is None else with_row(hull, h * objectives.scale), live

    def _expand(
        self, federation: Federation, state: FUParetoState, objectives: Objectives, losses: dict[str, Loss]
    ) -> FUParetoState:
        """Take a Pareto expansion step: orthogonal to the retained gradients, accepted by the forget clients.

        Retained clients have no veto, but the rise of their mean loss since the last improvement is limited.
        """
        span = state.sample if self.expansion_projection else ()
        hull, live = expansion_hull(objectives, state.forget, span, self.expansion_guidance, self.guidance_scale)
        steps = trial_steps(self._eta(state), self.s, enlarge=self.expansion_large_steps)
        line = self._line(state, objectives, self._descent(objectives, hull, live), steps)
        baseline = baseline_losses(state.baseline, objectives.losses_of(state.sample), state.harm)
        found = Found()
        if line is not None:
            forget = {i: losses[i] for i in state.forget}
            retained = {} if self.expansion_harm is None else {i: losses[i] for i in state.sample}
            limit = HarmLimit(baseline, self.expansion_harm or 0.0)
            found = search_expansion(federation, line, forget, retained, limit)
        harm = found.harm or (state.harm if state.baseline else 1.0)
        return dataclasses.replace(self._moved(state, "expand", objectives, found), baseline=baseline, harm=harm)

    def _end_unlearning(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        ended = state.ended or self.rating.exhausted(state.rate, self.lr, state.stalled)
        if state.round - state.started < self.rounds and not ended:
            return state
        if not self.recovery_rounds:
            return dataclasses.replace(state, done=True)
        state = self._guarded(federation, state) if self.recovery_kind.guarded else state
        return dataclasses.replace(
            state, stage="recovered", rate=self.recovery_rate, stalled=0, started=state.round, expand_next=False
        )

    # Recovery --------------------------------------------------------------------------------------------------

    def _guarded(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """Ask the forget clients for their guards, before recovery; a client that does not answer has none."""
        guard, guarded, absent = ask_guards(federation, state.w, dict.fromkeys(GUARDS, state.forget))
        record = {**state.record, "missing": {**state.record["missing"], **absent}}
        return dataclasses.replace(state, guard=guard, guarded=guarded, record=record)

    def stored(self, state: FUParetoState) -> FUParetoState:
        """Leave the guards out of a checkpoint: samples can be rebuilt from raw gradients of a few of them."""
        return dataclasses.replace(state, guard=torch.empty(0))

    def restored(
        self, federation: Federation, state: FUParetoState, unlearned: Tensor | None
    ) -> tuple[FUParetoState, Missing]:
        """Ask the forget clients for their guards again, at the model with which recovery began."""
        if state.stage != "recovered" or not self.recovery_kind.guarded or unlearned is None:
            return state, {}
        guard, _, absent = ask_guards(federation.at(state.started - 1), unlearned, state.guarded)
        return dataclasses.replace(state, guard=guard), absent

    def _recover(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """Take a recovery step, eq. (9): lower the retained losses without relearning, by guards or an anchor."""
        losses = dict.fromkeys(state.sample, CE)
        objectives = self._ask(federation, state, losses, self.recovery_kind.rows(state.w, state.w0, state.guard))
        if not objectives.answer.ids:
            return self._stay(state, "recover", objectives, "retained")
        direction = self._descent(objectives, *self.recovery_kind.hull(objectives, self.equal_norms))
        line = self._line(state, objectives, direction, trial_steps(self._eta(state), self.s, enlarge=True))
        if line is None:
            found = Found()
        elif self.recovery_search:
            found = search_improvement(federation, line, losses, state.vetoed)
        else:
            found = Found(line.direction, self._eta(state), cosines=objectives.cosines(line.coefficients))
        return self._moved(state, "recover", objectives, found)

    def _end_recovery(self, state: FUParetoState) -> FUParetoState:
        over = state.round - state.started >= self.recovery_rounds
        stuck = self.rating.exhausted(state.rate, self.recovery_rate, state.stalled)
        return dataclasses.replace(state, done=over or stuck)

    # Both stages -----------------------------------------------------------------------------------------------

    def _eta(self, state: FUParetoState) -> float:
        return self.rating.eta(state.rate, state.round)

    def _ask(
        self, federation: Federation, state: FUParetoState, losses: dict[str, Loss], extra: Tensor | None = None
    ) -> Objectives:
        """Ask for losses and gradients; after a round without a step they may be those of the last round."""
        seed = state.stream("gradient")
        pseudo = Local(self._eta(state), 1, self.batch_size, seed) if self.gradient == "pseudo" else None
        keep = pseudo is None and self.search_mode == "eval"
        again = keep and state.answered == tuple(losses)
        answer = federation.gradients(
            state.w, losses, pseudo=pseudo, mode=self.search_mode, seed=seed, keep=keep, repeated=again
        )
        return Objectives.of(answer, self.equal_norms, extra, dict.fromkeys(state.forget, self.forgotten_loss))

    def _descent(self, objectives: Objectives, hull: Hull | Array, live: list[int]) -> Array | None:
        """Return the min-norm point of the hull, scaled to the length of the mean gradient of the live clients."""
        return objectives.descent(hull, objectives.mean_length(live) if self.rescale else None)

    def _line(
        self, state: FUParetoState, objectives: Objectives, direction: Array | None, steps: tuple[float, ...]
    ) -> Line | None:
        """Return the line to search; its seed is that of the gradients, so that dropout masks are the same."""
        seed = state.stream("gradient")
        rule = Rule(self.beta, self.armijo, self.search_mode, seed, self.expansion_fallback, self.quorum)
        return None if direction is None else Line(state.w, objectives, direction, steps, rule)

    def _moved(
        self, state: FUParetoState, phase: str, objectives: Objectives, found: Found, expand_next: bool = False
    ) -> FUParetoState:
        """Take the accepted step, if any; halve the base rate after three consecutive rounds without a step."""
        w, stalled, rate, baseline = state.w, state.stalled + 1, state.rate, state.baseline
        answer, measured = objectives.answer, state.measured
        answered = () if answer.missing else answer.ids
        if found.direction is not None and found.accepted is not None:
            w, stalled, baseline, answered = state.w - found.accepted * found.direction, 0, {}, ()
            largest = phase == "expand" and found.accepted == found.tried[0]
            follows = phase != "recover"
            rate = self.rating.after(rate, found.accepted, measured, largest) if follows else rate
            measured = measured or follows
        elif stalled % 3 == 0:
            rate = state.rate / 2
        forgotten = objectives.forgotten(state.forget, self.forgotten_loss)
        record = {
            "lr": self._eta(state),
            "step": found.accepted,
            "tried": list(found.tried),
            **({"vetoes": found.vetoes} if found.vetoes else {}),
            "losses": dict(zip(answer.ids, answer.losses.tolist(), strict=True)),
            "cosines": found.cosines,
            "missing": {**answer.missing, **found.missing},
            "forgotten": None if phase == "recover" or self.renew else forgotten,
            **state.told(state.sample),
        }
        changes = {"rate": rate, "measured": measured, "stalled": stalled, "expand_next": expand_next}
        vetoed = found.vetoed or state.vetoed
        return state.after(phase, record, w=w, answered=answered, vetoed=vetoed, baseline=baseline, **changes)

    def _stay(
        self, state: FUParetoState, phase: str, objectives: Objectives, side: str, missing: Missing | None = None
    ) -> FUParetoState:
        """End a round in which no client of one side answered: the model is unchanged and the round is repeated.

        If no client of a sample answers, an expansion is not repeated: the next round asks another sample.
        """
        again = state.expand_next and (side == "forget" or len(state.sample) == len(state.retained))
        stayed = self._moved(state, phase, objectives, Found(missing=missing or {}), again)
        record = {**stayed.record, "note": f"no {side} client answered; the model is unchanged"}
        return dataclasses.replace(stayed, rate=state.rate, stalled=state.stalled, record=record)
