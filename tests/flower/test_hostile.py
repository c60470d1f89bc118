"""Answers that were made to harm: none of them stops the server or fools it, and each is its client's failure."""

import io
import json
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from federation.worlds import FORGET, clients, plain, start
from fupareto import api, serial
from fupareto.federation import Local
from fupareto.federation.collected import Trial
from fupareto.federation.questions import (
    Evaluate,
    Evaluated,
    Failure,
    Gradient,
    LossAndGradient,
    Losses,
    Question,
    Train,
    Trained,
    TrialLosses,
    flaw,
)
from fupareto.federation.questions.schema import LONGEST, MOST
from fupareto.flower import engine, nodes
from fupareto.flower.engine import FlowerFederation
from fupareto.flower.records import Envelope, answer_records
from fupareto.methods import FUPareto
from fupareto.tasks.losses import Loss

from .grid import Fault, LocalGrid, grid_of

CE = Loss("ce")
W = start()
IDS = ("c0", "c1", "c2", "c3", "c4", "c5")
BAD = "c3"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MEETING", 0.0)


def with_fault(fault: Fault, *ids: str) -> tuple[FlowerFederation, LocalGrid]:
    grid = grid_of(plain, clients())
    federation = FlowerFederation(grid, plain(), clients=6, timeout=0.0, patience=0.0)
    for i in ids or (BAD,):
        grid.of(i).fault = fault
    return federation, grid


def told(kind: str, values: str, arrays: dict[str, Array] | None = None) -> Fault:
    """An answer of this type, with these values as they are written, and these arrays."""

    def fault(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == nodes.WHO:
            return reply
        about = {**reply.content.config_records["fupareto"], "type": kind, "values": values}
        kept = dict(reply.content.array_records["fupareto.arrays"]) if arrays is None else arrays
        return Message(
            RecordDict({"fupareto": ConfigRecord(about), "fupareto.arrays": ArrayRecord(kept)}), reply_to=message
        )

    return fault


def npy(shape: str, data: bytes = b"\0" * 4, dtype: str = "<f4") -> Array:
    """An array whose header says what it likes."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    whole = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data
    return Array("float32", (1,), "numpy.ndarray", whole)


HUGE = "1" + "0" * 400
TRAINED: dict[str, Fault] = {
    "a failure without a reason": told("Failure", '{"reason": null}', {}),
    "a failure with a long reason": told("Failure", json.dumps({"reason": "x" * 900_000}), {}),
    "a failure with a longer reason": told("Failure", json.dumps({"reason": "x" * 2_000_000}), {}),
    "no bytes": told("Trained", '{"size": 3}', {"w": Array("float32", (), "numpy.ndarray", b"")}),
    "no header": told("Trained", '{"size": 3}', {"w": Array("float32", (), "numpy.ndarray", b"\x93NUMPY")}),
    "10^15 floats": told("Trained", '{"size": 3}', {"w": npy("(10**15,)".replace("10**15", str(10**15)))}),
    "2^64 x 2^64 floats": told("Trained", '{"size": 3}', {"w": npy(f"({2**64}, {2**64})")}),
    "a negative shape": told("Trained", '{"size": 3}', {"w": npy("(-1, -1)")}),
    "objects": told("Trained", '{"size": 3}', {"w": npy("(1,)", dtype="|O")}),
    "a deep header": told("Trained", '{"size": 3}', {"w": npy("(" * 3000)}),
    "a pickle": told("Trained", '{"size": 3}', {"w": Array("float32", (), "numpy.ndarray", b"\x80\x04N.")}),
    "not of NumPy": told("Trained", '{"size": 3}', {"w": Array("float32", (1,), "pickle", b"1234")}),
    "size of 10^400": told("Trained", f'{{"size": {HUGE}}}'),
    "size of 2^70": told("Trained", f'{{"size": {2**70}}}'),
    "size of true": told("Trained", '{"size": true}'),
    "size of infinity": told("Trained", '{"size": Infinity}'),
    "size of 1.5": told("Trained", '{"size": 1.5}'),
    "size in 10,000 digits": told("Trained", '{"size": ' + "1" * 10_000 + "}"),
    "nested 100,000 times": told("Trained", '{"size": ' + "[" * 100_000 + "]" * 100_000 + "}"),
}
GRADIENTS = {
    "steps of 10^400": f'{{"loss": 1.0, "steps": {HUGE}}}',
    "steps of 2^70": f'{{"loss": 1.0, "steps": {2**70}}}',
    "steps of true": '{"loss": 1.0, "steps": true}',
    "a loss of 10^400": f'{{"loss": {HUGE}, "steps": 1}}',
    "a loss of true": '{"loss": true, "steps": 1}',
    "a loss in words": '{"loss": "1.0", "steps": 1}',
    "a negative loss": '{"loss": -1000000.0, "steps": 1}',
}
COUNTS: dict[str, Any] = {
    "infinite counts": {"test": {"samples": math.inf, "right": 1, "loss": 0.0}},
    "infinite right answers": {"test": {"samples": math.inf, "right": math.inf, "loss": 0.0}},
    "counts of true": {"test": {"samples": True, "right": True, "loss": 0.0}},
    "counts of 10^400": {"test": {"samples": 10**400, "right": 10**400, "loss": 0.0}},
    "counts in halves": {"test": {"samples": 3.5, "right": 1.5, "loss": 0.0}},
    "no counts": {},
    "other counts": {"trigger": {"samples": 10, "right": 0, "loss": 0.0}},
    "one more": {"test": {"samples": 1, "right": 0, "loss": 0.0}, "x": {"samples": 1, "right": 0, "loss": 0.0}},
    "no samples": {"test": {"samples": 0, "right": 0, "loss": 0.0}},
    "no loss": {"test": {"samples": 4, "right": 0}},
    "a list": [1],
}


def assert_named(missing: dict[str, str]) -> None:
    assert list(missing) == [BAD]
    assert 10 < len(missing[BAD]) <= LONGEST


@pytest.mark.parametrize("fault", TRAINED.values(), ids=TRAINED)
def test_hostile_models(fault: Fault) -> None:
    mean = with_fault(fault)[0].train_mean(W, IDS, CE, Local(0.1))
    assert_named(mean.missing)
    assert mean.w is not None
    assert bool(torch.isfinite(mean.w).all())


@pytest.mark.parametrize("values", GRADIENTS.values(), ids=GRADIENTS)
def test_hostile_gradients(values: str) -> None:
    found = with_fault(told("LossAndGradient", values))[0].gradients(W, dict.fromkeys(IDS, CE))
    assert_named(found.missing)


@pytest.mark.parametrize("values", [f"[{HUGE}]", "[true]", '["a"]', "[1.0, 2.0]", "[[1.0]]", "{}", "1.0"])
def test_hostile_trial_losses(values: str) -> None:
    missing: dict[str, str] = {}
    federation, _ = with_fault(told("Losses", f'{{"losses": {values}}}'))
    list(federation.losses(Trial(W, W, (0.1,)), dict.fromkeys(IDS, CE), missing))
    assert_named(missing)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_hostile_counts(counts: Any) -> None:
    federation, _ = with_fault(told("Evaluated", json.dumps({"counts": counts})))
    assert_named(federation.evaluate(W, IDS, ("test",)).missing)


def test_an_error_with_a_long_reason_is_cut_short() -> None:
    from flwr.app import Error

    federation, _ = with_fault(lambda message, reply: Message(Error(3, "x\n" * 1_000_000), reply_to=message))
    assert_named(federation.train_mean(W, IDS, CE, Local(0.1)).missing)


def test_a_reply_that_flower_cannot_read_is_its_clients_failure() -> None:
    federation, grid = with_fault(lambda message, reply: reply)
    pull, bad = grid.pull_messages, grid.number(BAD)

    def torn(message_ids: Any) -> Any:
        found = list(pull(message_ids))
        if any(m.metadata.src_node_id == bad for m in found):
            raise ValueError("Unexpected set of children")
        return found

    grid.pull_messages = torn  # type: ignore[method-assign]
    missing = federation.train_mean(W, IDS, CE, Local(0.1)).missing
    assert_named(missing)
    assert "Unexpected set of children" in missing[BAD]


# A client that does not want to be measured ----------------------------------------------------------------------

METHOD = FUPareto(rounds=2, recovery_rounds=1, lr=0.3)
FIRST = 2  # the initial model is measured after the last model of each stage


def measured(change: Callable[[dict[str, Any], int], Any]) -> Fault:
    """Other counts, of how often it was measured before."""
    seen: list[int] = []

    def fault(message: Message, reply: Message) -> Message:
        if message.metadata.message_type != "evaluate.unlearn":
            return reply
        about = dict(reply.content.config_records["fupareto"])
        counts = change(json.loads(str(about["values"]))["counts"], len(seen))
        seen.append(1)
        about["values"] = json.dumps({"counts": counts})
        return Message(RecordDict({**reply.content, "fupareto": ConfigRecord(about)}), reply_to=message)

    return fault


REFUSALS: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "nothing": lambda counts, n: {},
    "no samples": lambda counts, n: {"train": {"samples": 0, "right": 0, "loss": 0.0}},
    "nothing after the first model": lambda counts, n: counts if n == FIRST else {},
    "fewer samples after the first model": lambda counts, n: (
        counts if n == FIRST else {"train": {"samples": 1, "right": 0, "loss": 0.0}}
    ),
}


@pytest.mark.parametrize("change", REFUSALS.values(), ids=REFUSALS)
def test_a_client_that_is_not_measured_is_never_certified_as_forgotten(change: Any) -> None:
    federation, grid = with_fault(measured(change), FORGET[0])
    result = api.unlearn(federation, W, list(FORGET), METHOD, measure_every=0)
    summary = result.summary()
    assert summary["status"] == "unverified"
    assert FORGET[0] in summary["missing"]
    assert f"Not verified for {FORGET[0]}" in summary["verdict"]
    grid.of(FORGET[0]).fault = measured(change)
    checks = {c["name"]: c for c in result.audit()["verdict"]["checks"]}
    assert checks["forgotten" if "forgotten" in checks else "unknown"]["result"] == "open"


# Anything ----------------------------------------------------------------------------------------------------------

QUESTIONS: tuple[tuple[Question, Any], ...] = (
    (Train(W, CE, 0.1, 1, 9, 0), Trained(W, 30)),
    (Gradient(W, CE), LossAndGradient(1.0, W, 1)),
    (TrialLosses(W, W, (0.1, 0.2), CE), Losses((1.0, 2.0))),
    (Evaluate(W, ("test",)), Evaluated({"test": {"samples": 4, "right": 3, "loss": 0.1}})),
    (Train(W, CE, 0.1, 1, 9, 0), Failure("no")),
)
PIECES = (
    "null",
    "true",
    "-1",
    "1e400",
    "NaN",
    "-Infinity",
    HUGE,
    str(2**70),
    '""',
    "[]",
    "{}",
    '"\\u0000"',
    "[[[[",
    "0.5",
)


def fuzzed(rng: random.Random, answer: Any, envelope: Envelope) -> RecordDict:
    """An answer with something in it replaced, left out, repeated or torn."""
    content = answer_records(answer, envelope)
    about = dict(content.config_records["fupareto"])
    arrays = dict(content.array_records["fupareto.arrays"])
    for _ in range(rng.randint(1, 3)):
        what = rng.randrange(8)
        whole = [(name, array) for name, array in arrays.items() if array.data]
        if what == 0 and whole:
            name, array = rng.choice(whole)
            data = bytearray(array.data)
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(min(len(data), 128) if rng.random() < 0.8 else len(data))] = rng.randrange(256)
            arrays[name] = Array(array.dtype, array.shape, array.stype, bytes(data[: rng.choice((None, 0, 9, 200))]))
        elif what == 1:
            arrays[rng.choice(("w", "gradient", "v", ""))] = npy(f"({rng.choice((0, -1, 1, 2**63, 10**15))},)")
        elif what == 2:
            values = serial.pack(answer)[1]
            key = rng.choice([*values, "x"])
            rest = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in values.items() if k != key)
            about["values"] = f'{{{rest}{", " if rest else ""}"{key}": {rng.choice(PIECES)}}}'
        elif what == 3:
            about["type"] = rng.choice(("Trained", "Losses", "Evaluated", "Failure", "Lacking", "Answer", "", "type"))
        elif what == 4:
            about[rng.choice(("round", "number", "client", "values"))] = rng.choice(
                (-1, 2**62, "x", 1.5, True, b"", [1])
            )
        elif what == 5 and about:
            del about[rng.choice(list(about))]
        elif what == 6 and arrays:
            del arrays[rng.choice(list(arrays))]
        elif what == 7:
            counts = f'{{"test": {{"samples": {rng.choice(PIECES)}, "right": 3, "loss": {rng.choice(PIECES)}}}}}'
            about["measured"] = f'{{"counts": {rng.choice((*PIECES, counts))}{rng.choice(("}", ""))}'
        about.setdefault("values", "")
    return RecordDict({"fupareto": ConfigRecord(about), "fupareto.arrays": ArrayRecord(arrays)})


def test_ten_thousand_answers_and_none_stops_the_server() -> None:
    rng, envelope = random.Random(0), Envelope(0, 1, BAD)
    asked = Message(RecordDict(), 7, "train.unlearn")
    asked.metadata.__dict__["_src_node_id"] = 1
    refused = carried = 0
    for _ in range(10_000):
        question, answer = rng.choice(QUESTIONS)
        reply = Message(fuzzed(rng, answer, envelope), reply_to=asked)
        found = engine._read(reply, envelope)
        for measured in engine._measured(BAD, reply).values():  # every one of them is spoilt
            carried += 1
            assert flaw(Evaluate(W, ("test",)), measured, len(W)) is not None or sound(measured)
        reason = flaw(question, found, len(W))  # type: ignore[arg-type]
        if reason is not None:
            refused += 1
            assert 0 < len(reason) <= LONGEST
        else:
            tensors = [t for t in vars(found).values() if isinstance(t, torch.Tensor)]
            assert all(t.shape == W.shape and bool(torch.isfinite(t).all()) for t in tensors)
    assert refused > 7_000
    assert carried > 500


def sound(measured: Any) -> bool:
    """Whether a measurement is one that a client could have made."""
    counts = measured.counts["test"]
    return 3 <= counts["samples"] <= MOST and isinstance(counts["loss"], float | int)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_arrays_are_read_as_numpy_reads_them(order: Any, dtype: Any) -> None:
    from fupareto.flower.arrays import tensor_of

    values = np.arange(12, dtype=dtype).reshape(3, 4).copy(order=order)
    stream = io.BytesIO()
    np.save(stream, values)
    found = tensor_of(Array(str(values.dtype), (3, 4), "numpy.ndarray", stream.getvalue()))
    assert np.array_equal(found.numpy(), values)
    found += 1  # writable
