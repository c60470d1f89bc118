"""Replay of rounds: states that are kept while a run goes on, and the rounds that are computed again from them.

Every round's record has the SHA-256 of the model after it. Which states are kept follows from the digest of the model
before the round, which nobody can choose without computing the rounds before it; the first round is always kept. A
state is never kept if it has a tensor other than those of :data:`PUBLIC`, because that may be a gradient or a model of
the forgotten data alone; such a round is not replayable.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fupareto import serial
from fupareto.errors import UserError
from fupareto.federation.contract import Federation
from fupareto.federation.request import Request
from fupareto.federation.wrappers import Attendance, KeepingAnswers
from fupareto.methods.base import Method, State
from fupareto.run.directory import Run

KEEP = 4  # states that are kept of a run, on average, besides the first
PUBLIC = {"w", "w0", "v", "center"}  # tensors of states that hold no answer of a forget client alone
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


def digest(w: Tensor) -> str:
    """Return the SHA-256 of a model in memory."""
    return hashlib.sha256(w.detach().cpu().contiguous().float().numpy().tobytes()).hexdigest()


def drawn(before: str, round_: int, budget: int) -> bool:
    """Return whether the state before a round is kept.

    Args:
        before: Digest of the model before the round.
        round_: Number of the round, from 1 on.
        budget: Largest number of rounds of the run.
    """
    number = int.from_bytes(hashlib.sha256(f"{before}:{round_}".encode()).digest()[:8], "big")
    return round_ == 1 or number % max(1, budget // KEEP) == 0


def public(state: State) -> bool:
    """Return whether a state has no tensor that may be a gradient or a model of the forgotten data alone."""
    tensors, _ = serial.pack(state)
    return all(name in PUBLIC or not tensor.numel() for name, tensor in tensors.items())


def replay(
    place: Run, method: Method, federation: Federation, rounds: Sequence[int] = (), near: float = NEAR
) -> list[Replayed]:
    """Compute rounds of a run again, from their kept states, and compare the models.

    Args:
        place: The run.
        method: Its method.
        federation: Its clients, divided for its request.
        rounds: Numbers of the rounds; empty for all whose states are kept.
        near: Largest difference that is no contradiction.
    """
    records = {record["round"]: record for record in place.rounds()}
    if unknown := [n for n in rounds if n not in records]:
        raise UserError(f"{place.path} has no round {unknown[0]}; it has {len(records)}")
    chosen = list(rounds) or [n for n in sorted(records) if place.has_replay(n)]
    chosen = chosen if 1 in chosen or not place.has_replay(1) else [1, *chosen]  # it ties the others to the options
    with federation.session():
        return [_again(place, method, federation, records, number, near) for number in chosen]


def _first(place: Run, method: Method, federation: Federation, kept: State) -> State:
    """Return the state that the first round starts from, which the method may begin with another model than w0."""
    held = place.load_model("initial")
    if held is None:
        raise UserError(f"{place.path} has no initial.safetensors, from which its first round started")
    w0 = federation.layout.flat(held).to(federation.device)
    return method.init(federation, w0, Request.from_json(place.request), kept.seed)


def _again(
    place: Run, method: Method, federation: Federation, records: dict[int, dict[str, Any]], number: int, near: float
) -> Replayed:
    if not place.has_replay(number):
        kept = ", ".join(str(n) for n in records if place.has_replay(n)) or "none"
        return Replayed(
            number, UNKNOWN, f"its state was not kept (states of rounds {kept} were), so it is not replayable"
        )
    try:
        before, after = place.load_replay(number, method.state)
    except UserError as error:
        return Replayed(number, WRONG, f"its kept state is not one of the method {method.name}: {error}")
    state: State | None = serial.moved(before, federation.device)
    start = records.get(number - 1, {}).get("state")
    if number == 1:  # from the request and the options, not from what the state says of them
        begun = _first(place, method, federation, before)
        start, state = digest(begun.w), begun if serial.same(begun, state) else None
    recorded = records[number].get("state")
    if state is None or digest(state.w) != start or state.round != number - 1 or digest(after) != recorded:
        return Replayed(number, WRONG, "its kept state is not that of the recorded rounds")
    again: Tensor = method.step(Attendance(KeepingAnswers(federation).at(state.round)), state).w.cpu()
    if torch.equal(again, after):
        return Replayed(number, BITS, "computed again, it is the same bit for bit")
    far = float((again - after).abs().max())
    if far <= near:
        return Replayed(number, CLOSE, f"computed again, it differs by {far:.1e} at most")
    return Replayed(number, WRONG, f"computed again, the model differs by {far:.1e}: another method, option or data")
