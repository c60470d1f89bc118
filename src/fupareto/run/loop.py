"""The loop: step a method, measure, write the run directory, resume. It knows nothing of any method."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fupareto import serial
from fupareto.audit import measure as audit
from fupareto.errors import UserError
from fupareto.federation.contract import Federation
from fupareto.federation.questions import diverged
from fupareto.federation.request import Request
from fupareto.federation.wrappers import KeepingAnswers
from fupareto.methods.base import Method
from fupareto.run.directory import Run
from fupareto.run.in_memory import MemoryRun

Sides = tuple[tuple[str, ...], tuple[str, ...]]  # forget set, retained set
Watch = Callable[[dict[str, Any]], None]  # called with every round's record
PATIENCE = 3  # rounds in a row that ruined everybody's model: training has diverged and nothing will bring it back


@dataclass
class Outcome:
    """A finished run: its models, rounds and federation, ready to be measured."""

    federation: Federation
    place: Run | MemoryRun
    sides: Sides
    part: str = ""  # the data that are to be forgotten, in words, when they are not whole clients

    def model(self, stage: str) -> Tensor | None:
        """Return the flat model of a stage."""
        tensors = self.place.load_model(stage)
        return None if tensors is None else self.federation.layout.flat(tensors).to(self.federation.device)


def run(
    method: Method,
    federation: Federation,
    w0: Tensor,
    request: Request | None,
    *,
    seed: int = 0,
    place: Run | MemoryRun | None = None,
    about: Request | None = None,
    measure_every: int = 1,
    watch: Watch | None = None,
) -> Outcome:
    """Step ``method`` until it is done; a place that holds a checkpoint is continued from it.

    Models are measured against ``about``, by default the request: training is watched for a request to come. With a
    ``measure_every`` of 0 only the last model of a stage is.
    """
    place = place or MemoryRun()
    about = about or request
    sides = about.sides(federation.ids) if about else ((), federation.ids)
    state = place.load_state(method.state)
    if state is not None:
        state = serial.moved(state, federation.device)
    else:
        state = method.init(federation, w0, request, seed)
        if state.stage != "initial":  # training ends with the initial model, everything else starts with it
            place.save_model("initial", federation.layout.named(w0))
        place.save_state(state)
    ruined, kept = 0, KeepingAnswers(federation)
    while not state.done:
        before, stage = (federation.traffic.up, federation.traffic.down), state.stage
        start = time.perf_counter()
        state = method.step(kept.at(state.round), state)
        record = {
            "round": state.round,
            "stage": stage,
            "phase": state.phase,
            **state.record,
            "seconds": round(time.perf_counter() - start, 6),
            "bytes_up": federation.traffic.up - before[0],
            "bytes_down": federation.traffic.down - before[1],
        }
        ended = state.done or state.stage != stage
        if ended or (measure_every and state.round % measure_every == 0):
            record |= _glance(federation, state.w, w0, sides)
        if ended:
            place.save_model(stage, federation.layout.named(state.w))
        place.append(record)
        place.save_state(state)
        if watch:
            watch(record)
        nobody = state.record.get("step") is None and diverged(state.record.get("missing", {}))
        ruined = ruined + 1 if nobody and stage == "initial" else 0
        if ruined == PATIENCE:
            raise UserError(
                f"training has diverged: in rounds {state.round - PATIENCE + 1} to {state.round} nobody's model"
                f" could be used ({next(iter(state.record['missing'].values()))}); train again, at a lower rate"
            )
    return Outcome(federation, place, sides, about.words() if about else "")


def _glance(federation: Federation, w: Tensor, w0: Tensor, sides: Sides) -> dict[str, Any]:
    """Return what a round's line says of the model it ended with."""
    measured, _ = audit.measure(federation, w, w0, *sides)
    return {key: measured[key] for key in ("asr", "r_acc", "r_acc_min", "forget_acc", "distance")}
