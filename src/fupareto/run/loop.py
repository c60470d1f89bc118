"""Loop of a run: step the method, measure the model, write records and checkpoints, resume.

The loop does not depend on any particular method.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fupareto import serial
from fupareto.audit.attendance import FIRST_ANSWERS, answered
from fupareto.audit.measure import measure, splits_of
from fupareto.errors import Diverged, UserError
from fupareto.federation.contract import Federation
from fupareto.federation.questions import diverged
from fupareto.federation.request import Request
from fupareto.federation.wrappers import Attendance, KeepingAnswers
from fupareto.methods.base import Method, State
from fupareto.run import replay
from fupareto.run.directory import Run
from fupareto.run.in_memory import MemoryRun

log = logging.getLogger("fupareto")
Sides = tuple[tuple[str, ...], tuple[str, ...]]  # forget set, retained set
Watch = Callable[[dict[str, Any]], None]  # called with every round's record
STORED = "stored"  # entry of the record of a round whose state is larger than all before
PATIENCE = 3  # consecutive rounds without a usable answer after which a run stops


@dataclass
class Outcome:
    """Outcome of a run, before its models are measured for the summary.

    Attributes:
        federation: The clients, divided for the request.
        place: Storage of records and models.
        sides: Forget set and retained set.
        part: Description of the forgotten data where they are not whole clients.
        stored: The most bytes that the method's state held in addition to the model; None where it is not known.
    """

    federation: Federation
    place: Run | MemoryRun
    sides: Sides
    part: str = ""
    stored: int | None = None

    def model(self, stage: str) -> Tensor | None:
        """Return the vector of a stage's model; None if the run has not reached the stage."""
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
    """Step ``method`` until it is done, from the checkpoint in ``place`` if there is one.

    Args:
        method: The method.
        federation: The clients, divided for the request.
        w0: Vector of the model to start from.
        request: What must be forgotten; None for a training.
        seed: Seed of all random choices.
        place: Storage of the run; by default memory.
        about: Request against which models are measured; by default ``request``. A training is measured against the
            request that will follow it.
        measure_every: Rounds between measurements of the model; 0 measures only the last model of a stage.
        watch: Function that is called with the record of every round.

    Returns:
        The outcome.
    """
    place = place or MemoryRun()
    about = about or request
    sides = about.sides(federation.ids) if about else ((), federation.ids)
    with federation.session():
        state, missing = _resumed(method, federation, place)
        if state is None:
            state = method.init(federation, w0, request, seed)
            if state.stage != "initial":  # a training run ends with the initial model; other runs start with it
                place.save_model("initial", federation.layout.named(w0))
            place.save_state(method.stored(state))
        book = _Book(federation, place, w0, sides, watch)
        if not state.done:
            book.take_up(state.w)
        rounds = _Rounds(method, KeepingAnswers(federation), place, answered(book.records()), missing)
        held = max((record.get(STORED, 0) for record in book.records()), default=0)
        keeper = replay.Keeper(method, place, book.records()) if sides[0] and request is not None else None
        while not state.done:
            before, stage = state, state.stage
            state, record = rounds.next(before)
            book.complete(before.w)
            if (now := _stored_bytes(state)) > held:
                record[STORED] = held = now
            if keeper:  # what a request was answered by can be computed again
                record |= keeper.kept(before, state)
            ended = state.done or state.stage != stage
            if ended:
                place.save_model(stage, federation.layout.named(state.w))
            due = bool(measure_every) and state.round % measure_every == 0
            book.enter(record, state.w, "now" if ended else "soon" if due else "never")
            place.save_state(method.stored(state), book.waiting)
            rounds.check(record)
    _check_learnt(place.rounds(), state, w0)
    return Outcome(federation, place, sides, about.words() if about else "", held)


def _resumed(method: Method, federation: Federation, place: Run | MemoryRun) -> tuple[State | None, dict[str, str]]:
    """Return the state of the checkpoint, None without one, and the clients that could not help to restore it."""
    state = place.load_state(method.state)
    if state is None:
        return None, {}
    unlearned = Outcome(federation, place, ((), ())).model("unlearned")
    state, missing = method.restored(federation, serial.moved(state, federation.device), unlearned)
    if missing:
        log.warning("resumed without what these clients had given: %s", _reasons(missing))
    return state, missing


def _stored_bytes(state: State) -> int:
    """Return the bytes of a state in addition to the model."""
    tensors, _ = serial.pack(state)
    return sum(t.nbytes for name, t in tensors.items() if name != "w")


@dataclass
class _Book:
    """The records of a run, and the measurements in them.

    Where an engine can send a measurement together with the next round's first question, the record of a round waits
    for it, and the checkpoint holds it until then.
    """

    federation: Federation
    place: Run | MemoryRun
    w0: Tensor
    sides: Sides
    watch: Watch | None
    waiting: dict[str, Any] | None = None  # record of the last round, without its measurement

    def take_up(self, w: Tensor) -> None:
        """Announce the measurement for which the last record of a resumed run waits."""
        self.waiting = self.place.waiting
        if self.waiting is not None:
            self.federation.foresee(w, splits_of(*self.sides))

    def records(self) -> list[dict[str, Any]]:
        """Return the records of all rounds."""
        return [*self.place.rounds(), *([self.waiting] if self.waiting is not None else [])]

    def enter(self, record: dict[str, Any], w: Tensor, measured: Literal["now", "soon", "never"]) -> None:
        """Enter the record of a round; ``measured`` says when its model is to be measured."""
        if measured == "soon" and self.federation.foresee(w, splits_of(*self.sides)):
            self.waiting = record
        elif measured == "never":
            self._write(record)
        else:
            self._write({**record, **_glance(self.federation, w, self.w0, self.sides)})

    def complete(self, w: Tensor) -> None:
        """Complete the record that waits for the measurement of its model, if one does."""
        if self.waiting is not None:
            record, self.waiting = self.waiting, None
            self._write({**record, **_glance(self.federation, w, self.w0, self.sides)})

    def _write(self, record: dict[str, Any]) -> None:
        self.place.append(record)
        if self.watch:
            self.watch(record)


@dataclass
class _Rounds:
    """Rounds of a run, with a count of those without a usable answer."""

    method: Method
    federation: Federation
    place: Run | MemoryRun
    answered: set[str]  # clients that have given a usable answer so far
    absent: dict[str, str] = field(default_factory=dict)  # clients that could not help to restore the state
    unanswered: int = 0  # consecutive rounds without a usable answer
    diverged: int = 0  # consecutive rounds without a usable answer because all local models had diverged

    def next(self, state: State) -> tuple[State, dict[str, Any]]:
        """Run one round and return the state after it, with its record."""
        traffic, start = self.federation.traffic, time.perf_counter()
        up, down, passes = traffic.up, traffic.down, traffic.passes
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
            "passes": round(traffic.passes - passes, 3),
        }
        if self.absent:
            record["missing"], self.absent = {**record.get("missing", {}), **self.absent}, {}
        if new := [i for i in self.federation.ids if i in present.answered - self.answered]:
            record[FIRST_ANSWERS] = new
        self.answered |= present.answered
        failed = bool(present.asked) and not present.answered
        self.unanswered = self.unanswered + 1 if failed else 0
        self.diverged = self.diverged + 1 if failed and diverged(record.get("missing", {})) else 0
        return after, record

    def check(self, record: Mapping[str, Any]) -> None:
        """Warn of a round without a usable answer; stop a run that never had one, or whose training has diverged."""
        if not self.unanswered:
            return
        last, reasons = record["round"], _reasons(record.get("missing", {}))
        log.warning("round %d: no client gave a usable answer, so the model is unchanged (%s)", last, reasons)
        if self.diverged == PATIENCE and record["stage"] == "initial":
            raise Diverged(
                f"training has diverged: no client's model was usable in rounds {last - PATIENCE + 1} to {last} "
                f"({reasons}); train again with a lower learning rate"
            )
        if self.diverged == PATIENCE and not self.answered:
            raise Diverged(
                f"the method has diverged: no client's answer was usable in rounds {last - PATIENCE + 1} to {last} "
                f"({reasons}); choose a lower rate"
            )
        if self.unanswered == PATIENCE and not self.answered:
            raise UserError(f"no client has given a usable answer in {PATIENCE} rounds, so the run stops: {reasons}")


def _check_learnt(rounds: Sequence[Mapping[str, Any]], state: State, w0: Tensor) -> None:
    """Refuse a run without a single usable answer, and a training that did not change the model."""
    asked = {i: why for record in rounds for i, why in (record.get("missing") or {}).items()}
    if asked and not answered(rounds):
        kind = Diverged if diverged(asked) else UserError
        raise kind(f"no client gave a usable answer in any of the {len(rounds)} rounds: {_reasons(asked)}")
    if state.stage == "initial" and rounds and torch.equal(state.w, w0.to(state.w.device)):
        raise UserError(
            f"{len(rounds)} rounds of training did not change the model; check the learning rate, and that the loss "
            "depends on the model's parameters"
        )


def _reasons(missing: Mapping[str, str]) -> str:
    """Return the reasons why clients are missing, each with one client as an example."""
    first: dict[str, str] = {}
    for i, why in missing.items():
        first.setdefault(why, i)
    return "; ".join(f"client '{i}': {why}" for why, i in first.items())


def _glance(federation: Federation, w: Tensor, w0: Tensor, sides: Sides) -> dict[str, Any]:
    """Return the measurements of a model that go into the record of a round."""
    measured, _ = measure(federation, w, w0, *sides)
    return {key: measured[key] for key in ("asr", "r_acc", "r_acc_min", "forget_acc", "distance")}
