"""How does a question travel over Flower? As records: tensors as arrays, everything else as lines of JSON.

Nothing is pickled on either side, and whatever a record holds is checked before it is used.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fupareto import serial
from fupareto.federation.request import Request

T = TypeVar("T")
ARRAYS, ABOUT, HERE = "fupareto.arrays", "fupareto", "fupareto.here"


@dataclass(frozen=True)
class Envelope:
    """What stands on the outside: the round, the number of the message in the run, and for whom it is."""

    round: int
    number: int
    client: str  # a node answers for its client, and for the part of it that a request for samples or classes names


@dataclass(frozen=True)
class Lacking:
    """An answer: the model that was said to be known is not here; send everything."""


def question_records(
    question: Any, envelope: Envelope, request: Request | None = None, known: str | None = None
) -> RecordDict:
    """Return a question as records; a model with the fingerprint ``known`` stays behind, for the client has it."""
    content = _records(question, envelope, () if known is None else ("w",))
    content.config_records[ABOUT]["known"] = known or ""
    content.config_records[ABOUT]["request"] = json.dumps(request.to_json()) if request else ""
    return content


def answer_records(answer: Any, envelope: Envelope) -> RecordDict:
    """Return an answer as records."""
    return _records(answer, envelope, ())


def _records(thing: Any, envelope: Envelope, without: tuple[str, ...]) -> RecordDict:
    tensors, values = serial.pack(thing)
    arrays = {name: array_of(tensor) for name, tensor in tensors.items() if name not in without}
    about: dict[str, Any] = {"type": type(thing).__name__, "values": json.dumps(values), **envelope.__dict__}
    return RecordDict({ARRAYS: ArrayRecord(arrays), ABOUT: ConfigRecord(about)})


def read_question(types: Mapping[str, type[T]], content: RecordDict, kept: Tensor | None) -> T | Lacking:
    """Rebuild a question, with the model that was ``kept`` where it stayed behind; ValueError if it cannot be."""
    known = str(content.config_records[ABOUT]["known"])
    if known and (kept is None or fingerprint(kept) != known):
        return Lacking()
    return _read(types, content, {"w": kept} if known and kept is not None else {})


def read_answer(types: Mapping[str, type[T]], content: RecordDict) -> T:
    """Rebuild an answer; ValueError if it cannot be."""
    return _read(types, content, {})


def _read(types: Mapping[str, type[T]], content: RecordDict, known: dict[str, Tensor]) -> T:
    try:
        about, arrays = content.config_records[ABOUT], content.array_records[ARRAYS]
        tensors = {name: tensor_of(array) for name, array in arrays.items()} | known
        return serial.unpack(types[str(about["type"])], tensors, json.loads(str(about["values"])))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def read_envelope(content: RecordDict) -> Envelope:
    """Return what stands on the outside; ValueError if nothing does."""
    try:
        about = content.config_records[ABOUT]
        return Envelope(int(str(about["round"])), int(str(about["number"])), str(about["client"]))
    except KeyError as error:
        raise ValueError(f"a message without {error}") from error


def read_request(content: RecordDict) -> Request | None:
    """Return the request by which a client's data are divided, if they are."""
    about = content.config_records.get(ABOUT)
    raw = "" if about is None else str(about.get("request", ""))
    return Request.from_json(json.loads(raw)) if raw else None


def request_records(request: Request) -> RecordDict:
    """Return the question whose data a node has, when a request divides them."""
    return RecordDict({ABOUT: ConfigRecord({"request": json.dumps(request.to_json())})})


def here_records(ids: list[str], refused: str = "") -> RecordDict:
    """Return the answer to the question whose data a node has: its client, and its part if there is one."""
    return RecordDict({HERE: ConfigRecord({"ids": ids, "refused": refused})})


def read_here(content: RecordDict) -> tuple[list[str], str]:
    """Return whose data a node has, and why it did not say so; nobody when it is not one of ours."""
    record = content.config_records.get(HERE)
    if record is None:
        return [], ""
    ids = record.get("ids")
    return [str(i) for i in ids] if isinstance(ids, list) else [], str(record.get("refused", ""))


def array_of(tensor: Tensor) -> Array:
    """Return a tensor as Flower's array."""
    return Array(tensor.detach().cpu().contiguous().numpy())


def tensor_of(array: Array) -> Tensor:
    """Return Flower's array as a tensor that may be written to."""
    return torch.from_numpy(array.numpy().copy())


def fingerprint(w: Tensor) -> str:
    """Return what names a model: both sides must mean the same one before it stays behind."""
    return hashlib.blake2b(w.cpu().contiguous().numpy().data, digest_size=16).hexdigest()
