"""The loop: step a method, measure, write the run directory, resume. It knows nothing of any method."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fupareto import serial
from fupareto.audit.attendance import FIRST_ANSWERS, answered
from fupareto.audit.measure import measure
from fupareto.errors import UserError
from fupareto.federation.contract import Federation
from fupareto.federation.questions import diverged
from fupareto.federation.request import Request
from fupareto.federation.wrappers import Attendance, KeepingAnswers
from fupareto.methods.base import Method, State
from fupareto.run.directory import Run
from fupareto.run.in_memory import MemoryRun

log = logging.getLogger("fupareto")
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
    with federation.session():
        state = place.load_state(method.state)
        if state is not None:
            state = serial.moved(state, federation.device)
        else:
            state = method.init(federation, w0, request, seed)
            if state.stage != "initial":  # training ends with the initial model, everything else starts with it
                place.save_model("initial", federation.layout.named(w0))
            place.save_state(state)
        rounds = _Rounds(method, KeepingAnswers(federation), place, answered(place.rounds()))
        while not state.done:
            before, stage = state, state.stage
            state, record = rounds.next(before)
            ended = state.done or state.stage != stage
            if ended or (measure_every and state.round % measure_every == 0):
                record |= _glance(federation, state.w, w0, sides)
            if ended:
                place.save_model(stage, federation.layout.named(state.w))
            place.append(record)
            place.save_state(state)
            if watch:
                watch(record)
            rounds.check(record)
    _check_learnt(place.rounds(), state, w0)
    return Outcome(federation, place, sides, about.words() if about else "")


@dataclass
class _Rounds:
    """The rounds of a run, one after the other, and who has answered in them."""

    method: Method
    federation: Federation
    place: Run | MemoryRun
    answered: set[str]  # clients that have given a usable answer so far
    silent: int = 0  # rounds in a row in which nobody did
    ruined: int = 0  # rounds in a row in which nobody did because all models had diverged

    def next(self, state: State) -> tuple[State, dict[str, Any]]:
        """Do one round and return the state after it, with its record."""
        traffic, start = self.federation.traffic, time.perf_counter()
        up, down = traffic.up, traffic.down
        present = Attendance(self.federation.at(state.round))
        after: State = self.method.step(present, state)
        record = {
            "round": after.round,
            "stage": state.stage,
            "phase": after.phase,
            **after.record,
            "seconds": round(time.perf_counter() - start, 6),
            "bytes_up": traffic.up - up,
            "bytes_down": traffic.down - down,
        }
        if new := [i for i in self.federation.ids if i in present.answered - self.answered]:
            record[FIRST_ANSWERS] = new
        self.answered |= present.answered
        nobody = bool(present.asked) and not present.answered
        self.silent = self.silent + 1 if nobody else 0
        self.ruined = self.ruined + 1 if nobody and diverged(record.get("missing", {})) else 0
        return after, record

    def check(self, record: Mapping[str, Any]) -> None:
        """Warn of a round in which nobody answered; give up where nobody ever has, or where training has diverged."""
        if not self.silent:
            return
        last, reasons = record["round"], _reasons(record.get("missing", {}))
        log.warning("round %d: no client gave a usable answer, so the model stays (%s)", last, reasons)
        if self.ruined == PATIENCE and record["stage"] == "initial":
            raise UserError(
                f"training has diverged: in rounds {last - PATIENCE + 1} to {last} nobody's model"
                f" could be used ({reasons}); train again, at a lower rate"
            )
        if self.silent == PATIENCE and not self.answered:
            raise UserError(f"no client has given a usable answer in {PATIENCE} rounds, so the run stops: {reasons}")


def _check_learnt(rounds: Sequence[Mapping[str, Any]], state: State, w0: Tensor) -> None:
    """Refuse to call a run finished in which nobody ever answered, or a training that left the model as it was."""
    asked = {i: why for record in rounds for i, why in (record.get("missing") or {}).items()}
    if asked and not answered(rounds):
        raise UserError(f"no client gave a usable answer in any of the {len(rounds)} rounds: {_reasons(asked)}")
    if state.stage == "initial" and rounds and torch.equal(state.w, w0.to(state.w.device)):
        raise UserError(
            f"no client learnt anything in {len(rounds)} rounds of training: the model is the one it started from; "
            "check the rate, and that the loss depends on the model's parameters"
        )


def _reasons(missing: Mapping[str, str]) -> str:
    """Say why clients are missing, one client for every reason."""
    first: dict[str, str] = {}
    for i, why in missing.items():
        first.setdefault(why, i)
    return "; ".join(f"client '{i}': {why}" for why, i in first.items())


def _glance(federation: Federation, w: Tensor, w0: Tensor, sides: Sides) -> dict[str, Any]:
    """Return what a round's line says of the model it ended with."""
    measured, _ = measure(federation, w, w0, *sides)
    return {key: measured[key] for key in ("asr", "r_acc", "r_acc_min", "forget_acc", "distance")}
