"""Questions and answers as Flower records: tensors as arrays, everything else as JSON text.

Nothing is pickled on either side, and the content of a record is checked before it is used.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from fupareto import documents, serial
from fupareto.federation.questions.schema import LONGEST, clipped
from fupareto.federation.request import Request
from fupareto.flower.arrays import array_of, fingerprint, tensor_of

T = TypeVar("T")
ARRAYS, ABOUT, HERE = "fupareto.arrays", "fupareto", "fupareto.here"
MOST_TEXT = 10**6  # characters of an answer without its arrays
MOST_NAME = 200  # characters of a client id


@dataclass(frozen=True)
class Envelope:
    """Identification of a message; its answer carries the same.

    Attributes:
        round: Round of the run.
        number: Number of the message in the run.
        client: Client that is asked: the node's own, or its virtual client.
    """

    round: int
    number: int
    client: str


@dataclass(frozen=True)
class Lacking:
    """Answer of a node that does not have the model of the question, which then has to be sent again."""


def question_records(
    question: Any,
    envelope: Envelope,
    request: Request | None = None,
    known: str | None = None,
    task: Mapping[str, Any] | None = None,
) -> RecordDict:
    """Return a question as records.

    Args:
        question: The question.
        envelope: Identification of the message.
        request: Request that divides the data of the client.
        known: Fingerprint of the model, where the client already has it; the model is then not sent.
        task: Name and options of the task, where the server knows it.
    """
    content = _records(question, envelope, () if known is None else ("w",))
    content.config_records[ABOUT]["known"] = known or ""
    content.config_records[ABOUT]["request"] = json.dumps(request.to_json()) if request else ""
    content.config_records[ABOUT]["task"] = json.dumps(task) if task else ""
    return content


def carry(content: RecordDict, name: str, value: Mapping[str, Any]) -> None:
    """Add a small object to a message: ``measure``, splits to measure as well, or ``measured``, the counts of them."""
    content.config_records[ABOUT][name] = json.dumps(value)


def carried(content: RecordDict, name: str) -> dict[str, Any]:
    """Return an object that a message carries; empty without one, or where it is malformed."""
    about = content.config_records.get(ABOUT)
    text = "" if about is None else str(about.get(name, ""))
    try:
        return documents.parse_object(text, finite=False) if 0 < len(text) <= MOST_TEXT else {}
    except ValueError:
        return {}


def kind_of(message: Message) -> str:
    """Return the type of a message, and whether it carries a measurement: the two take different times."""
    measures = message.has_content() and carried(message.content, "measure")
    return f"{message.metadata.message_type}{'+measure' if measures else ''}"


def answer_records(answer: Any, envelope: Envelope) -> RecordDict:
    """Return an answer as records."""
    return _records(answer, envelope, ())


def _records(thing: Any, envelope: Envelope, without: tuple[str, ...]) -> RecordDict:
    """Return a dataclass as records, without the tensors named in ``without``."""
    tensors, values = serial.pack(thing)
    arrays = {name: array_of(tensor) for name, tensor in tensors.items() if name not in without}
    about: dict[str, Any] = {"type": type(thing).__name__, "values": json.dumps(values), **envelope.__dict__}
    return RecordDict({ARRAYS: ArrayRecord(arrays), ABOUT: ConfigRecord(about)})


def read_question(types: Mapping[str, type[T]], content: RecordDict, kept: Tensor | None) -> T | Lacking:
    """Return the question in records, with the ``kept`` model where none was sent.

    Returns:
        The question, or Lacking where the kept model is missing or another one.

    Raises:
        ValueError: The records are malformed.
    """
    known = str(content.config_records[ABOUT]["known"])
    if known and (kept is None or fingerprint(kept) != known):
        return Lacking()
    return _read(types, content, {"w": kept} if known and kept is not None else {})


def read_answer(types: Mapping[str, type[T]], content: RecordDict) -> T:
    """Return the answer in records; ValueError if they are malformed, or more than an answer can be."""
    about = content.config_records.get(ABOUT)
    if about is None or len(text := str(about.get("values", ""))) > MOST_TEXT:
        raise ValueError("no answer" if about is None else f"an answer with {len(text):,} characters of text")
    return _read(types, content, {})


def _read(types: Mapping[str, type[T]], content: RecordDict, known: dict[str, Tensor]) -> T:
    """Return the dataclass in records, completed by the tensors in ``known``."""
    try:
        about, arrays = content.config_records[ABOUT], content.array_records[ARRAYS]
        tensors = {name: tensor_of(array) for name, array in arrays.items()} | known
        return serial.unpack(
            types[str(about["type"])], tensors, documents.parse_object(str(about["values"]), finite=False)
        )
    except Exception as error:  # whatever the records contain
        raise ValueError(clipped(f"{type(error).__name__}: {error}")) from error


def read_envelope(content: RecordDict) -> Envelope:
    """Return the envelope in records; ValueError if it is missing or incomplete."""
    try:
        about = content.config_records[ABOUT]
        return Envelope(int(str(about["round"])), int(str(about["number"])), str(about["client"]))
    except (KeyError, ValueError) as error:
        raise ValueError(clipped(f"the message does not say what it answers: {error}")) from error


def read_request(content: RecordDict) -> Request | None:
    """Return the request that divides the data of the client; None without one."""
    about = content.config_records.get(ABOUT)
    raw = "" if about is None else str(about.get("request", ""))
    return Request.from_json(documents.parse_object(raw)) if raw else None


def read_task(content: RecordDict) -> dict[str, Any] | None:
    """Return the name and options of the task that the server states; None if it states none."""
    about = content.config_records.get(ABOUT)
    raw = "" if about is None else str(about.get("task", ""))
    found = json.loads(raw) if raw else None
    if found is not None and not isinstance(found, dict):
        raise ValueError("the task in the message is not a name with options")
    return found


def request_records(request: Request, task: Mapping[str, Any] | None = None) -> RecordDict:
    """Return the question for the client ids of a node whose data a request divides."""
    about = {"request": json.dumps(request.to_json()), "task": json.dumps(task) if task else ""}
    return RecordDict({ABOUT: ConfigRecord(about)})  # type: ignore[arg-type]


def here_records(ids: list[str], refused: str = "") -> RecordDict:
    """Return the answer with the client ids of a node: its client and, if there is one, its virtual client."""
    return RecordDict({HERE: ConfigRecord({"ids": ids, "refused": refused})})


def read_here(content: RecordDict) -> tuple[list[str] | None, str]:
    """Return the client ids of a node, and its error message.

    The ids are empty if a request has left no data to the node, and None if the node does not run this software, or has
    names that no client can have.
    """
    record = content.config_records.get(HERE)
    if record is None:
        return None, ""
    ids, refused = record.get("ids"), record.get("refused", "")
    named = isinstance(ids, list) and len(ids) <= 2 and all(map(_is_name, ids))
    return list(map(str, ids)) if named and isinstance(ids, list) else None, clipped(str(refused)[: 2 * LONGEST])


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MOST_NAME and name.isprintable() and name.strip() == name
