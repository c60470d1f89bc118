import dataclasses
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fupareto import serial
from fupareto.federation.questions import (
    ANSWERS,
    QUESTIONS,
    Answer,
    Attest,
    Attested,
    Compare,
    Compared,
    Digest,
    Digested,
    Edit,
    Evaluate,
    Evaluated,
    Failure,
    Gradient,
    LossAndGradient,
    Losses,
    PseudoGradient,
    Question,
    Signalled,
    Signals,
    Summed,
    Sums,
    Train,
    Trained,
    TrainHead,
    TrainWithin,
    TrialLosses,
)
from fupareto.methods.base import State
from fupareto.tasks.losses import Loss

EVERY_TYPE: dict[str, Any] = {**QUESTIONS, **ANSWERS}

seeds = st.integers(0, 2**63 - 1)
numbers = st.floats(allow_nan=False)
counts = st.integers(0, 2**40)
modes = st.sampled_from(["eval", "train"])
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
vectors: st.SearchStrategy[Tensor] = st.lists(st.floats(width=32, allow_nan=False), max_size=6).map(torch.tensor)
references = st.one_of(st.none(), vectors)
losses = st.sampled_from(
    [
        *(Loss("ce"), Loss("mbs"), Loss("mbs", delta=1e-3, form="printed"), Loss("kl", direction="model")),
        *(Loss("npo", b=0.5), Loss("imitate")),
    ]
)
questions: st.SearchStrategy[Question] = st.one_of(
    st.builds(Train, vectors, losses, numbers, counts, counts, seeds, references),
    st.builds(TrainWithin, vectors, vectors, numbers, losses, numbers, numbers, numbers, counts, counts, seeds),
    st.builds(TrainHead, vectors, vectors, numbers, counts, counts, seeds),
    st.builds(Edit, vectors, vectors, numbers, numbers, st.booleans(), numbers, counts, counts, seeds),
    st.builds(Gradient, vectors, losses, modes, seeds, references),
    st.builds(PseudoGradient, vectors, losses, numbers, counts, counts, modes, seeds, references),
    st.builds(TrialLosses, vectors, vectors, st.lists(numbers, max_size=4).map(tuple), losses, modes, seeds),
    st.builds(Evaluate, vectors, st.lists(names, max_size=3).map(tuple)),
)
tables = st.dictionaries(names, st.dictionaries(st.sampled_from(["samples", "right", "loss"]), numbers), max_size=3)
answers: st.SearchStrategy[Answer | Failure] = st.one_of(
    st.builds(Trained, vectors, counts),
    st.builds(LossAndGradient, numbers, vectors, counts),
    st.builds(Losses, st.lists(numbers, max_size=4).map(tuple)),
    st.builds(Evaluated, tables),
    st.builds(Failure, names),
)

w = torch.arange(4.0)
EXAMPLES: list[Question | Answer | Failure] = [
    Attest(w, "00"),
    Attested("{}", "{}"),
    Digest(),
    Digested("00"),
    Sums(w, 2, 3),
    Summed(torch.ones(3, 3, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64)),
    Train(w, Loss("ce"), 0.1, 1, 200, 7),
    TrainWithin(w, w + 1, 2.5, Loss("ascent"), 0.1, 0.9, 5.0, 1, 200, 7),
    TrainHead(w, w[:2], 0.1, 1, 200, 7),
    Edit(w, w + 1, 0.5, 1.0, True, 0.1, 1, 200, 7),
    Gradient(w, Loss("mbs", delta=1e-3)),
    Gradient(w, Loss("npo"), "eval", 0, w + 1),
    PseudoGradient(w, Loss("uce"), 0.1, 1, 200),
    TrialLosses(w, w + 1, (0.5, 0.25), Loss("ce"), "train", 3),
    Evaluate(w, ("train", "test")),
    Trained(w, 20),
    LossAndGradient(0.5, w, 1),
    Losses((0.5, float("inf"))),
    Evaluated({"test": {"samples": 4, "right": 3, "loss": 0.25}}),
    Signals(w, ("nonmember", "test")),
    Signalled(w.double(), w.double(), w.double(), w.double(), torch.arange(6.0).double().view(2, 3)),
    Compare(w, w + 1, ("member", "train")),
    Compared(3, 0.5, 0.25, 0.125),
    Failure("RuntimeError: ünlucky"),
]


def kind(thing: object) -> str:
    return type(thing).__name__


def assert_same(found: object, wanted: object) -> None:
    assert type(found) is type(wanted)
    assert serial.same(found, wanted)


@given(questions)
def test_every_question_survives_bytes(question: Question) -> None:
    assert_same(serial.from_bytes(QUESTIONS, serial.to_bytes(question)), question)


@given(answers)
def test_every_answer_survives_bytes(answer: Answer | Failure) -> None:
    assert_same(serial.from_bytes(ANSWERS, serial.to_bytes(answer)), answer)


def test_the_examples_are_of_every_type() -> None:
    assert {kind(e) for e in EXAMPLES} == set(EVERY_TYPE)


@pytest.mark.parametrize("thing", EXAMPLES, ids=kind)
def test_fields_come_back_with_their_types(thing: Any) -> None:
    again = serial.from_bytes(EVERY_TYPE, serial.to_bytes(thing))
    for field in dataclasses.fields(thing):
        assert type(getattr(again, field.name)) is type(getattr(thing, field.name)), field.name


@pytest.mark.parametrize("thing", EXAMPLES, ids=kind)
def test_truncated_bytes_are_a_value_error(thing: Any) -> None:
    data = serial.to_bytes(thing)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="not a complete safetensors file"):
            serial.from_bytes(EVERY_TYPE, data[:length])


@settings(max_examples=50)
@given(st.binary(max_size=64))
def test_any_other_bytes_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        serial.from_bytes(EVERY_TYPE, data)


@pytest.mark.parametrize("values", ['{"loss": {"name": "newer-loss"}}', "[]"], ids=["unknown loss", "not an object"])
def test_a_message_of_another_version_is_a_value_error(values: str) -> None:
    data = safetensors.torch.save({"w": w}, {"type": "Gradient", "values": values})
    with pytest.raises(ValueError):
        serial.from_bytes(QUESTIONS, data)


def test_an_answer_is_not_a_question() -> None:
    with pytest.raises(ValueError, match="Train, TrainHead, Edit, TrainWithin, Gradient"):
        serial.from_bytes(QUESTIONS, serial.to_bytes(Trained(w, 1)))


def test_bytes_hold_values_not_memory() -> None:
    shared = torch.arange(8.0)
    data = serial.to_bytes(TrialLosses(shared[:4], shared[:4], (1.0,), Loss("ce")))
    shared.zero_()
    again = serial.from_bytes(QUESTIONS, data)
    assert isinstance(again, TrialLosses)
    assert again.w.tolist() == again.direction.tolist() == [0, 1, 2, 3]


def test_same_sees_every_difference() -> None:
    state = State(w=w, forget=("a",), retained=("b",), record={"step": 0.5})
    assert serial.same(state, dataclasses.replace(state, w=w.clone()))
    for change in ({"w": w + 1e-6}, {"seed": 1}, {"record": {"step": None}}, {"forget": ()}, {"w": torch.arange(5.0)}):
        assert not serial.same(state, dataclasses.replace(state, **change))


def test_a_state_packs_into_tensors_and_json_values() -> None:
    state = State(w=w, forget=("a",), retained=("b", "c"), record={"tried": [1.0], "missing": {"c": "late"}})
    tensors, values = serial.pack(state)
    assert list(tensors) == ["w"]
    assert serial.same(serial.unpack(State, tensors, {**values, "forget": ["a"], "retained": ["b", "c"]}), state)
