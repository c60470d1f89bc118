"""Replay of rounds: states that are kept while a run goes on, and the rounds that are computed again from them.

Every round's record has the SHA-256 of the state after it. The states of these rounds are kept:

- the first round, the first one of each phase, and every round that ends a part of the method: there the options act
  with which each part begins and ends;
- some others, which follow from the digest of the state before the round; nobody can choose that without computing the
  rounds before it.

A state is kept as a checkpoint holds it, without gradients of the forget clients; these are asked for again. It is not
kept if it has a tensor other than those of :data:`PUBLIC`, which may be a gradient or a model of the forgotten alone.
A round without a kept state is computed from the last kept state before it, through all rounds between.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fupareto import serial
from fupareto.errors import UserError
from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.federation.wrappers import Attendance, KeepingAnswers
from fupareto.methods.base import Method, State
from fupareto.run.directory import Run
from fupareto.run.in_memory import MemoryRun

KEEP = 4  # states that are kept of a run by their digest, on average
PUBLIC = {
    "w",
    "w0",
    "v",
    "center",
    "velocity",
    "mean",
}  # tensors of states that hold no answer of a forget client alone
FREE = ("missing", "held_out")  # entries of a record that are not compared: who answered, and counts of right answers
NEAR = 1e-5  # largest difference of a model that was computed on another machine, or in other processes
BITS, CLOSE, WRONG, UNKNOWN = "bits", "close", "wrong", "unknown"


@dataclass(frozen=True)
class Replayed:
    """Result of one round that was computed again.

    Attributes:
        round: Number of the round, from 1 on.
        result: ``bits`` (identical), ``close`` (to 1e-5), ``wrong``, or ``unknown`` (not replayable).
        text: What was found, in words.
    """

    round: int
    result: str
    text: str


def digest(state: State) -> str:
    """Return the SHA-256 of a state: its model and its values, without the record."""
    found = hashlib.sha256(state.w.detach().cpu().contiguous().float().numpy().data)
    found.update(json.dumps(_values(state), sort_keys=True).encode())
    return found.hexdigest()


def drawn(before: str, round_: int, budget: int) -> bool:
    """Return whether the state before a round is kept because of its digest.

    Args:
        before: Digest of the state before the round.
        round_: Number of the round, from 1 on.
        budget: Largest number of rounds of the run.
    """
    number = int.from_bytes(hashlib.sha256(f"{before}:{round_}".encode()).digest()[:8], "big")
    return number % max(1, budget // KEEP) == 0


def public(state: State) -> bool:
    """Return whether a state has no tensor that may be a gradient or a model of the forgotten data alone."""
    tensors, _ = serial.pack(state)
    return all(name in PUBLIC or not tensor.numel() for name, tensor in tensors.items())


class Keeper:
    """Keeps the states of a run that a replay needs.

    Args:
        method: The method.
        place: Storage of the run.
        records: Records of the rounds before, of a run that was interrupted.
    """

    def __init__(self, method: Method, place: Run | MemoryRun, records: Sequence[Mapping[str, Any]]) -> None:
        self.method, self.place = method, place
        self.phases = {record["phase"] for record in records}

    def kept(self, before: State, after: State) -> dict[str, str]:
        """Keep the states around a round if they are needed; return what its record says of the state after it."""
        stored = self.method.stored(before)
        turn = before.round == 0 or after.phase not in self.phases or _part(before) != _part(after)
        self.phases.add(after.phase)
        if (turn or drawn(digest(before), after.round, self.method.budget)) and public(stored):
            self.place.save_replay(after.round, stored, _model_only(after))
        return {"state": digest(after)}


def _part(state: State) -> tuple[str, int, bool]:
    """Return the part of the method that the next round belongs to."""
    return state.stage, state.started, state.done


def _model_only(state: State) -> State:
    """Return a state without tensors other than the model."""
    tensors, _ = serial.pack(state)
    empty: dict[str, Any] = {name: torch.empty(0) for name in tensors if name != "w"}
    return dataclasses.replace(state, **empty)


def _values(state: State) -> Any:
    """Return the values of a state, without the record, as JSON has them."""
    _, values = serial.pack(state)
    return json.loads(json.dumps({key: value for key, value in values.items() if key != "record"}))


def replay(
    place: Run, method: Method, federation: Federation, rounds: Sequence[int] | None = None, near: float = NEAR
) -> list[Replayed]:
    """Compute rounds of a run again and compare states, records and models.

    Args:
        place: The run.
        method: Its method.
        federation: Its clients, divided for its request.
        rounds: Numbers of the rounds; None for all whose states are kept, or should be. The first one is always among
            them: it ties the others to the request and the options.
        near: Largest difference that is no contradiction.
    """
    records = {record["round"]: record for record in place.rounds()}
    if unknown := [n for n in rounds or () if n not in records]:
        raise UserError(f"{place.path} has no round {unknown[0]}; it has {len(records)}")
    kept = [n for n in sorted(records) if place.has_replay(n)]
    if not kept:
        return [Replayed(n, UNKNOWN, "no state from which it could be computed was kept") for n in rounds or ()]
    again = _Again(place, method, federation, records, near)
    chosen = {*kept, *due(records, method.budget)} if rounds is None else {*rounds, kept[0]}
    with federation.session():
        found = [again.round(number) for number in sorted(chosen)]
        ends = sorted(again.ends - chosen) if rounds is None else []  # states that were kept, and are gone
        return sorted([*found, *(again.round(number) for number in ends)], key=lambda one: one.round)


def due(records: Mapping[int, Mapping[str, Any]], budget: int) -> set[int]:
    """Return the rounds whose states were to be kept, as far as the records say.

    Args:
        records: Records of all rounds, by number.
        budget: Largest number of rounds of the run.
    """
    first = {record["phase"]: n for n, record in sorted(records.items(), reverse=True)}
    ends = {n for n in records if n + 1 not in records or records[n + 1]["stage"] != records[n]["stage"]}
    lot = {n for n in records if n > 1 and drawn(str(records[n - 1].get("state")), n, budget)}
    return {1, *first.values(), *ends, *lot} & set(records)


class _Again:
    """Rounds of a run that are computed again."""

    def __init__(
        self, place: Run, method: Method, federation: Federation, records: Mapping[int, Mapping[str, Any]], near: float
    ) -> None:
        self.place, self.method, self.federation, self.records, self.near = place, method, federation, records, near
        self.last: State | None = None  # after the last round that was computed again, bit for bit
        self.ends: set[int] = set()  # rounds that ended a part of the method, as later states say

    def round(self, number: int) -> Replayed:
        """Compute a round again, from its kept state or from the rounds before it."""
        if not self.place.has_replay(number):
            return self._walked(number)
        try:
            before, after = self.place.load_replay(number, self.method.state)
        except UserError as error:
            return Replayed(number, WRONG, f"its kept state is not one of the method {self.method.name}: {error}")
        self.ends |= {before.started} - {0}
        start = self._start(number, before)
        if start is None or digest(after) != self.records[number].get("state"):
            return Replayed(number, WRONG, "its kept state is not that of the recorded rounds")
        if wrong := self._other_model(before, after):
            return Replayed(number, WRONG, wrong)
        again = self._step(start)
        self.last = again if digest(again) == digest(after) else None
        return self._compared(number, again, after)

    def _start(self, number: int, before: State) -> State | None:
        """Return the state that a round starts from; None if the kept one is not that of the recorded rounds.

        That of the first round is made from the request and the options, not from what the state says of them.
        """
        state: State = serial.moved(before, self.federation.device)
        if number == 1:
            begun = self._begun(before)
            return begun if serial.same(self.method.stored(begun), state) else None
        if digest(state) != self.records[number - 1].get("state") or state.round != number - 1:
            return None
        restored: State = self.method.restored(self.federation, state, self._model("unlearned"))[0]
        return restored

    def _begun(self, kept: State) -> State:
        """Return the state before the first round, which the method may begin with another model than w0."""
        w0 = self._model("initial")
        if w0 is None:
            raise UserError(f"{self.place.path} has no initial.safetensors, from which its first round started")
        return self.method.init(self.federation, w0, Request.from_json(self.place.request), kept.seed)

    def _model(self, stage: str) -> torch.Tensor | None:
        held = self.place.load_model(stage)
        return None if held is None else self.federation.layout.flat(held).to(self.federation.device)

    def _step(self, state: State) -> State:
        after: State = self.method.step(Attendance(KeepingAnswers(self.federation).at(state.round)), state)
        return after

    def _other_model(self, before: State, after: State) -> str:
        """Return that the model of a stage is not the one after its last round; empty if it is."""
        if not after.done and before.stage == after.stage:
            return ""
        w = self._model(before.stage)
        same = w is not None and torch.equal(w.cpu(), after.w.cpu())
        return "" if same else f"the model after it is not {before.stage}.safetensors"

    def _walked(self, number: int) -> Replayed:
        """Compute a round without a kept state, through the rounds since the last kept one."""
        kept = [n for n in sorted(self.records) if n < number and self.place.has_replay(n)]
        if not kept:
            return Replayed(number, UNKNOWN, "no state from which it could be computed was kept")
        if self.last is None or not kept[-1] <= self.last.round < number:
            self.round(kept[-1])
        while self.last is not None and self.last.round < number:
            again = self._step(self.last)
            self.last = again if digest(again) == self.records[again.round].get("state") else None
        if self.last is not None:
            return Replayed(number, BITS, f"computed again from round {kept[-1]} on, it is the same bit for bit")
        text = "differs, and by how much cannot be said without a kept state"
        return Replayed(number, UNKNOWN, f"computed again from round {kept[-1]} on, it {text}")

    def _compared(self, number: int, again: State, after: State) -> Replayed:
        """Compare the state after a round with the recorded one, and its record."""
        far = float((again.w.cpu() - after.w).abs().max())
        other = [key for key, value in _values(after).items() if not _alike(value, _values(again)[key], self.near)]
        recorded = self.records[number]
        told = json.loads(json.dumps({key: value for key, value in again.record.items() if key not in FREE}))
        other += [key for key, value in told.items() if not _alike(recorded.get(key), value, self.near)]
        if not other and torch.equal(again.w.cpu(), after.w):
            return Replayed(number, BITS, "computed again, it is the same bit for bit")
        if not other and far <= self.near:
            return Replayed(number, CLOSE, f"computed again, it differs by {far:.1e} at most")
        if absent := recorded.get("missing"):
            text = f"computed again, it differs; clients were missing then: {', '.join(absent)}"
            return Replayed(number, UNKNOWN, text)
        what = [f"the model differs by {far:.1e}"] if not far <= self.near else []
        what += [f"another {', '.join(dict.fromkeys(other))}"] if other else []
        return Replayed(number, WRONG, f"computed again, {' and '.join(what)}: another method, option or data")


def _alike(one: Any, other: Any, near: float) -> bool:
    """Return whether two JSON values are equal, numbers to within a relative or absolute difference."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key], near) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_alike(a, b, near) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=10 * near, abs_tol=near) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
