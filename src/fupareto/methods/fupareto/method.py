"""FUPareto (arXiv 2602.01852): Pareto improvement, Pareto expansion, recovery.

Unlearning alternates between two steps. *Improvement* moves along a direction that lowers every client's
objective at once, the forget clients' MBS loss and the retained clients' cross-entropy, until a line search finds
no step that everybody can live with: the model is near the Pareto front. *Expansion* then lowers the forget
clients' losses along a direction orthogonal to every retained client's gradient, and improvement resumes.
Orthogonal means unnoticed to first order only, so expansions may not double the retained clients' mean loss before an
improvement succeeds again (ours, ``expansion_harm``; without it a base rate that is too large ruins a model in two
rounds).
*Recovery* trains the retained clients without relearning what was forgotten.

With ``participation`` below 1 all forget clients and a share of the retained ones, drawn anew for every round, are
asked for gradients and losses, in both stages. An expansion answers the failed improvement before it and so keeps its
sample: a front of other clients is not known to be near. What expansions may cost is limited over the samples
together (``expansion.calm_losses``), and rounds without a step count whoever was asked: three samples that find none
are more reason to halve the rate, not less.

What can be chosen, the paper's literal reading and the ablations are in options.py.

Storage: w0, and two gradients per forget client during recovery. Communication per round and client asked: one model
down, one gradient up, one direction down; the line search adds scalars only.
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
from fupareto.methods.fupareto.expansion import calm_losses, expansion_direction, fall_back
from fupareto.methods.fupareto.objectives import Objectives, Rule, Search, search
from fupareto.methods.fupareto.options import FUParetoOptions
from fupareto.methods.fupareto.recovery import anchor, guards, recovery_direction
from fupareto.pareto import Array, angle, combine, guidance, trial_steps
from fupareto.pareto.direction import length
from fupareto.tasks.losses import Loss

CE = Loss("ce")


@dataclass(frozen=True)
class FUParetoState(State):
    """What FUPareto carries: where it started, its base rate, and what recovery must not undo."""

    w0: Tensor = field(default_factory=lambda: torch.empty(0))
    guard: Tensor = field(default_factory=lambda: torch.empty(0))  # (guards, parameters)
    rate: float = 0.0  # base rate, halved when the search stalls
    stalled: int = 0  # rounds in a row without an update
    started: int = 0  # the round in which the stage began
    sample: tuple[str, ...] = ()  # who of those who stay is asked in this round
    expand_next: bool = False
    calm: dict[str, float] = field(default_factory=dict)  # retained losses before the expansions since an improvement
    raised: float = 1.0  # by which factor those expansions raised them


@dataclass(frozen=True)
class FUPareto(FUParetoOptions):
    """Forget clients by Pareto-augmented optimisation."""

    name: ClassVar[str] = "fupareto"
    state: ClassVar[type[State]] = FUParetoState

    def init(self, federation: Federation, w0: Tensor, request: Request | None, seed: int = 0) -> FUParetoState:
        """Start improving from ``w0``."""
        forget, retained = self.sides(federation, request)
        return FUParetoState(w=w0, forget=forget, retained=retained, seed=seed, w0=w0, rate=self.lr)

    def step(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """One round: recover, or expand after a failed improvement, or improve; then see whether the stage is over."""
        keep = state.expand_next and state.sample
        state = dataclasses.replace(state, sample=keep or state.sampled(self.participation))
        if state.stage == "recovered":
            return self._end_recovery(self._recover(federation, state))
        return self._end_unlearning(federation, self._unlearn(federation, state))

    # Unlearning ------------------------------------------------------------------------------------------------

    def _unlearn(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """Improve; where the last improvement failed, the model is near the front, and this round expands it."""
        losses = {**dict.fromkeys(state.forget, self.forgetting), **dict.fromkeys(state.sample, CE)}
        objectives = self._ask(federation, state, losses)
        for side, ids in (("forget", state.forget), ("retained", state.retained)):
            if not objectives.of_clients(ids) and not (self.naive and side == "retained"):
                return self._stay(state, "expand" if state.expand_next else "improve", objectives, side)
        if self.naive:
            return self._moved(state, "descend", objectives, self._naive(state, objectives))
        if state.expand_next:
            return self._expand(federation, state, objectives, losses)
        steps = trial_steps(self._eta(state), self.s, enlarge=True)
        direction = self._improvement(state, objectives)
        found = search(federation, state.w, objectives, direction, steps, losses, self._rule(state))
        at_front = found.accepted is None and bool(objectives.unfinished(state.forget))
        if at_front and self.same_round_expansion:
            return self._expand(federation, state, objectives, losses, found.missing)
        return self._moved(state, "improve", objectives, found, expand_next=at_front)

    def _improvement(self, state: FUParetoState, objectives: Objectives) -> Array | None:
        """Pareto improvement: the min-norm point of all live gradients and the fairness guidance, eqs. (4) and (5)."""
        live = objectives.of_clients(objectives.answer.ids, live=True)
        hull = np.diag(objectives.scale)[live]
        losses, preference = objectives.answer.losses, np.ones(len(objectives.answer.ids))
        if self.guidance == "forget-first":
            preference[objectives.of_clients(state.forget)] = 0.0
        if self.guidance != "off" and np.degrees(angle(losses, preference)) >= self.guidance_min_angle:
            h = guidance(losses, preference, self.guidance_scale)
            if h is not None:
                hull = np.vstack([hull, h * objectives.scale])
        return objectives.descent(hull, objectives.mean_length(live) if self.rescale else None)

    def _expand(
        self,
        federation: Federation,
        state: FUParetoState,
        objectives: Objectives,
        losses: dict[str, Loss],
        missing: Missing | None = None,
    ) -> FUParetoState:
        """Pareto expansion: the forget clients alone decide on the step, off everybody else's gradients.

        Those who stay have no veto, but what all expansions since the last improvement cost them is limited.
        ``missing`` are those who fell silent when an improvement was tried in the same round.
        """
        span = state.sample if self.expansion_projection else ()
        how = (self.expansion_guidance, self.guidance_scale, self.rescale)
        direction = expansion_direction(objectives, state.forget, span, *how)
        steps = trial_steps(self._eta(state), self.s, enlarge=self.expansion_large_steps)
        vetoes = {i: losses[i] for i in state.forget}
        others = {} if self.expansion_harm is None else {i: losses[i] for i in state.sample}
        calm = calm_losses(state.calm, objectives.losses_of(state.sample), state.raised)
        harm, rule = self.expansion_harm or 0.0, self._rule(state)
        found = search(federation, state.w, objectives, direction, steps, vetoes, rule, True, others, calm, harm)
        found = fall_back(found, self.expansion_fallback)
        found = dataclasses.replace(found, missing={**(missing or {}), **found.missing})
        raised = found.harm or (state.raised if state.calm else 1.0)
        return dataclasses.replace(self._moved(state, "expand", objectives, found), calm=calm, raised=raised)

    def _naive(self, state: FUParetoState, objectives: Objectives) -> Search:
        """Take the mean forget gradient and a step of eta, unasked (ablation M1)."""
        forget = objectives.of_clients(state.forget)
        mean = np.zeros(len(objectives.gram))
        mean[forget] = 1.0 / len(forget)
        if length(objectives.gram, mean) == 0.0:  # everybody has forgotten
            return Search()
        return Search(combine(mean, objectives.rows), self._eta(state), cosines=objectives.cosines(mean))

    def _end_unlearning(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        forgotten = self.stop_when_forgotten and state.record["forgotten"]
        if state.round < self.rounds and not forgotten and not self._stuck(state, self.lr):
            return state
        if not self.recovery_rounds:
            return dataclasses.replace(state, done=True)
        state = self._guarded(federation, state) if self.recovery == "guard" else state
        return dataclasses.replace(
            state, stage="recovered", rate=self.recovery_rate, stalled=0, started=state.round, expand_next=False
        )

    # Recovery --------------------------------------------------------------------------------------------------

    def _guarded(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """Ask the forget clients a last time before they leave; whoever does not answer has no guard, and is named."""
        guard, absent = guards(federation, state.w, state.forget)
        record = {**state.record, "missing": {**state.record["missing"], **absent}}
        return dataclasses.replace(state, guard=guard, record=record)

    def _recover(self, federation: Federation, state: FUParetoState) -> FUParetoState:
        """Train the retained clients together, kept from relearning by guards or by an anchor at w0, eq. (9)."""
        losses = dict.fromkeys(state.sample, CE)
        extra = state.guard if self.recovery == "guard" else anchor(state.w, state.w0, self.recovery)
        objectives = self._ask(federation, state, losses, extra)
        if not objectives.answer.ids:
            return self._stay(state, "recover", objectives, "retained")
        coefficients = recovery_direction(objectives, self.recovery, self.equal_norms, self.rescale)
        steps = trial_steps(self._eta(state), self.s, enlarge=True) if self.recovery_search else ()
        found = search(federation, state.w, objectives, coefficients, steps, losses, self._rule(state))
        if not self.recovery_search and found.direction is not None:
            found = dataclasses.replace(found, accepted=self._eta(state))
        return self._moved(state, "recover", objectives, found)

    def _end_recovery(self, state: FUParetoState) -> FUParetoState:
        over = state.round - state.started >= self.recovery_rounds
        return dataclasses.replace(state, done=over or self._stuck(state, self.recovery_rate))

    # Both stages -----------------------------------------------------------------------------------------------

    def _eta(self, state: FUParetoState) -> float:
        return state.rate * self.decay**state.round

    def _ask(
        self, federation: Federation, state: FUParetoState, losses: dict[str, Loss], extra: Tensor | None = None
    ) -> Objectives:
        seed = state.stream("gradient")
        pseudo = Local(self._eta(state), 1, self.batch_size, seed) if self.gradient == "pseudo" else None
        again = state.stage == "unlearned"  # where searches fail; recovery has guards to hold instead
        answer = federation.gradients(state.w, losses, pseudo, self.search_mode, seed, keep=again)
        enough = dict.fromkeys(state.forget, self.enough) if self.ends else None
        return Objectives.of(answer, self.equal_norms, extra, enough)

    def _rule(self, state: FUParetoState) -> Rule:
        """Accept as the options say; with the seed of the losses before the step, so that dropout is the same."""
        return Rule(self.beta, self.armijo, self.search_mode, state.stream("gradient"))

    def _moved(
        self, state: FUParetoState, phase: str, objectives: Objectives, found: Search, expand_next: bool = False
    ) -> FUParetoState:
        """Take the accepted step, if any; three rounds in a row without one halve the base rate."""
        w, stalled, rate, calm = state.w, state.stalled + 1, state.rate, state.calm
        if found.direction is not None and found.accepted is not None:
            w, stalled, calm = state.w - found.accepted * found.direction, 0, {}
        elif stalled == 3:
            stalled, rate = 0, state.rate / 2
        answer = objectives.answer
        record = {
            "lr": self._eta(state),
            "step": found.accepted,
            "tried": list(found.tried),
            "losses": dict(zip(answer.ids, answer.losses.tolist(), strict=True)),
            "cosines": found.cosines,
            "missing": {**answer.missing, **found.missing},
            "forgotten": self._forgotten(state, objectives) if phase != "recover" else None,
            **state.told(state.sample),
        }
        return state.after(phase, record, w=w, stalled=stalled, rate=rate, expand_next=expand_next, calm=calm)

    def _stay(self, state: FUParetoState, phase: str, objectives: Objectives, side: str) -> FUParetoState:
        """An outage: nothing moves, nothing is concluded, and the next round tries the same again.

        A sample that is silent is not waited for: an expansion that it was to answer is given up, and others are asked.
        """
        again = state.expand_next and (side == "forget" or len(state.sample) == len(state.retained))
        stayed = self._moved(state, phase, objectives, Search(), again)
        record = {**stayed.record, "note": f"no {side} client answered, so the model stays"}
        return dataclasses.replace(stayed, rate=state.rate, stalled=state.stalled, record=record)

    def _forgotten(self, state: FUParetoState, objectives: Objectives) -> bool:
        return self.ends and objectives.forgotten(state.forget, self.enough)

    def _stuck(self, state: FUParetoState, start: float) -> bool:
        return state.rate < start * 2.0**-6
