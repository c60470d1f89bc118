"""What holds for every method that we compare with: stages, rates, outages, resuming, and no option that is dead."""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fupareto import serial
from fupareto.errors import UserError
from fupareto.federation.history import History
from fupareto.federation.questions import (
    Answer,
    Evaluate,
    Evaluated,
    Failure,
    PseudoGradient,
    Question,
    Train,
)
from fupareto.federation.request import Request
from fupareto.methods.fedosd import FedOSD
from fupareto.methods.registry import METHODS, find
from fupareto.methods.staged import Staged
from fupareto.tasks.losses import Loss

from . import blobs
from .quadratics import walk
from .spies import Spy, clients, record

NAMES = ("federaser", "fupga", "fededitor", "mode", "fedau", "fugas", "fedosd")
EVERYBODY, FORGET, STAY = {"0", "1", "2", "3"}, {"0", "1"}, {"2", "3"}
ASKED = {  # who takes part in unlearning
    "federaser": STAY,
    "fupga": FORGET,
    "fededitor": FORGET,
    "mode": EVERYBODY,
    "fedau": set(),
    "fugas": EVERYBODY,
    "fedosd": EVERYBODY,
}
RATES = {"lr": 0.02, "recovery_lr": 0.03, "decay": 0.9}
Plain = Callable[[str], tuple[Spy, list[Any]]]
BASE: dict[str, Any] = {"rounds": 3, "recovery_rounds": 2, "batch_size": 4, **RATES}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensor]:
    """The history of a training and the model it ended with."""
    path = tmp_path_factory.mktemp("history")
    return path, record(path)[1][-1]


def method(name: str, **options: Any) -> Staged:
    found = find(name, {**BASE, **options})
    assert isinstance(found, Staged)
    return found


def watched(training: tuple[Path, Tensor]) -> Spy:
    """Everybody claims to know everything, or FUPGA would be content at once."""

    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        knows = Evaluated({"train": {"samples": 12, "right": 12, "loss": 0.0}})
        return knows if isinstance(question, Evaluate) else answer

    return Spy(clients(), History.open(training[0]), change)


def run(name: str, training: tuple[Path, Tensor], seed: int = 4, **options: Any) -> tuple[Spy, list[Any]]:
    spy = watched(training)
    return spy, walk(method(name, **options), spy, training[1], blobs.FORGET, seed)


@pytest.fixture(scope="module")
def plain(training: tuple[Path, Tensor]) -> Callable[[str], tuple[Spy, list[Any]]]:
    """Return each method's plain run, made once."""
    return cache(lambda name: run(name, training))


def test_every_staged_method_is_here() -> None:
    assert set(NAMES) == {name for name, cls in METHODS.items() if issubclass(cls, Staged)}


@pytest.mark.parametrize("name", NAMES)
def test_stages_and_budget(name: str, training: tuple[Path, Tensor], plain: Plain) -> None:
    _, states = plain(name)
    first = 1 if name == "fedau" else 3
    assert [s.stage for s in states] == ["unlearned"] * first + ["recovered"] * 3
    assert [s.round for s in states] == list(range(first + 3))
    assert [s.done for s in states] == [False] * (first + 2) + [True]
    assert states[-1].started == first
    assert len(states) - 1 <= method(name).budget == 5
    _, short = run(name, training, recovery_rounds=0)
    assert [s.stage for s in short] == ["unlearned"] * (first + 1)
    assert short[-1].done
    assert torch.equal(short[-1].w, states[first].w)


@pytest.mark.parametrize("name", NAMES)
def test_rates_decay_over_both_stages_without_a_reset(name: str, plain: Plain) -> None:
    spy, states = plain(name)
    rates = [s.record["lr"] for s in states[1:]]
    wanted = {
        "federaser": [0.02 * 0.9**k for k in (0, 2, 4)],  # of the rounds that are replayed: three of six
        "fedau": [0.9],  # the share of the second head
    }.get(name, [0.02 * 0.9**k for k in range(3)])
    first = len(wanted)
    assert rates == pytest.approx(wanted + [0.03 * 0.9**k for k in range(first, first + 2)])
    late = [q for i, q in spy.asked if isinstance(q, Train | PseudoGradient)][-4:]  # two clients, two rounds
    assert [q.lr for q in late] == pytest.approx([0.03 * 0.9 ** (first + k) for k in (0, 0, 1, 1)])


@pytest.mark.parametrize("name", NAMES)
def test_who_takes_part(name: str, training: tuple[Path, Tensor]) -> None:
    spy = watched(training)
    chosen = method(name)
    state = chosen.init(spy, training[1], Request(blobs.FORGET))
    while state.stage == "unlearned":
        state = chosen.step(spy, state)
    assert spy.who() == ASKED[name]
    spy.asked.clear()
    while not state.done:
        state = chosen.step(spy, state)
    assert spy.who() == STAY


@pytest.mark.parametrize("name", [n for n in NAMES if n != "fedosd"])
def test_recovery_is_fedavg_with_those_who_stay(name: str, plain: Plain) -> None:
    spy, states = plain(name)
    before, after = states[-2:]
    asked = [(i, q) for i, q in spy.asked if isinstance(q, Train)][-2:]
    assert [i for i, _ in asked] == ["2", "3"]
    for _, q in asked:
        assert torch.equal(q.w, before.w)
        assert (q.loss, q.epochs, q.batch_size, q.reference) == (Loss("ce"), 1, 4, None)
    answers = [answer for _, answer in clients().ask(dict(asked))]
    models = torch.stack([a.w for a in answers if hasattr(a, "w")])
    torch.testing.assert_close(after.w, models.mean(0))  # both have twelve samples


@pytest.mark.parametrize("name", NAMES)
def test_an_outage_leaves_the_model_and_is_named(name: str, training: tuple[Path, Tensor], plain: Plain) -> None:
    _, states = plain(name)
    spy, chosen = watched(training), method(name)
    spy.absent = EVERYBODY
    for before in (states[1], states[-2]):  # in unlearning (but for FedAU) and in recovery
        spy.asked.clear()
        after = chosen.step(spy, before)
        assert torch.equal(after.w, before.w)
        assert after.record["step"] is None
        assert "no usable answer; the model is unchanged" in after.record["note"]
        assert set(after.record["missing"]) == spy.who()
        assert set(after.record["missing"].values()) == {"absent"}
        assert after.round == before.round + 1


@pytest.mark.parametrize("name", NAMES)
def test_one_missing_client_is_named_and_the_others_go_on(
    name: str, training: tuple[Path, Tensor], plain: Plain
) -> None:
    _, states = plain(name)
    spy = watched(training)
    for before, missing in ((states[1], "1"), (states[-2], "3")):
        spy.absent, spy.asked = {missing}, []
        after = method(name).step(spy, before)
        assert after.record["missing"] == dict.fromkeys(spy.who() & {missing}, "absent")
        assert not torch.equal(after.w, before.w)


@pytest.mark.parametrize("name", NAMES)
def test_resuming_anywhere_gives_the_same_bits(name: str, training: tuple[Path, Tensor], plain: Plain) -> None:
    _, states = plain(name)
    chosen = method(name)
    for cut, kept in enumerate(states[:-1]):
        state = serial.from_bytes({chosen.state.__name__: chosen.state}, serial.to_bytes(kept))
        elsewhere = watched(training)
        for wanted in states[cut + 1 :]:
            state = chosen.step(elsewhere, state)
            assert serial.same(state, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_finite_json_and_every_stage_moves(name: str, plain: Plain) -> None:
    _, states = plain(name)
    for before, after in pairwise(states):
        assert json.loads(json.dumps(after.record, allow_nan=False)) == after.record
        assert bool(torch.isfinite(after.w).all())
        assert not torch.equal(before.w, after.w)
        assert after.record["step"] is not None
        assert after.record["missing"] == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_is_all_the_randomness_there_is(name: str, training: tuple[Path, Tensor]) -> None:
    torch.rand(3)
    one, two, other = (run(name, training, seed=seed)[1][-1].w for seed in (4, 4, 5))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)  # dropout, at the least


# Options -------------------------------------------------------------------------------------------------------

SHARED: dict[str, Any] = {
    "rounds": 2,
    "recovery_rounds": 1,
    "lr": 0.04,
    "recovery_lr": 0.5,
    "decay": 0.5,
    "epochs": 2,
    "batch_size": 5,
    "recovery_optimizer": "adam",
}
OTHERS: dict[str, dict[str, Any]] = {
    "federaser": {**SHARED, "epochs": 4, "rho": 2.0},
    "fupga": {**SHARED, "momentum": 0.1, "clip": 0.01},
    "fededitor": {**SHARED, "tau": 0.1, "mu": 9.0, "keep": False},
    "mode": {**SHARED, "momentum": 0.5, "degrading": 0.0},
    "fedau": {**SHARED, "alpha": 0.1},
    "fugas": {**SHARED, "b": 0.1},
    "fedosd": SHARED,
}
IDLE = {
    "fedau": {"rounds", "lr"},  # one sum: there is no second round, and no rate
    "fedosd": {"recovery_optimizer"},  # recovers along projected gradients
}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_changes_the_run(name: str, training: tuple[Path, Tensor], plain: Plain) -> None:
    assert set(OTHERS[name]) == {f.name for f in dataclasses.fields(method(name))} - {
        "aggregation"
    }  # in test_averaging
    _, base = plain(name)
    for option, other in OTHERS[name].items():
        _, changed = run(name, training, **{option: other})
        same = len(base) == len(changed) and torch.equal(base[-1].w, changed[-1].w)
        assert same == (option in IDLE.get(name, ())), option


COUNTS, RATIOS = {"rounds", "recovery_rounds", "epochs", "batch_size"}, {"lr", "recovery_lr", "decay"}
reals = st.floats() | st.floats(-1.5, 1.5) | st.sampled_from([0.0, 1.0])


def fades(**changed: float) -> bool:
    """Return whether the last rate of a stage is below 1e-30, of which float32 leaves nothing."""
    own = {option: getattr(FedOSD(), option) for option in COUNTS | RATIOS} | changed
    end = own["rounds"] + own["recovery_rounds"] - 1
    unlearning, recovery = own["lr"] * own["decay"] ** (own["rounds"] - 1), own["recovery_lr"] * own["decay"] ** end
    return bool(unlearning < 1e-30 or (own["recovery_rounds"] and recovery < 1e-30))


@given(st.sampled_from(sorted(COUNTS | RATIOS)), st.integers(-3, 3) | reals | st.booleans() | st.text(max_size=3))
def test_an_option_holds_a_number_that_makes_sense_or_is_refused_by_name(option: str, value: Any) -> None:
    """Counts are whole and above 0 (no recovery at all is allowed), rates finite and above 0, and none decays upwards.

    One method stands for all: the options and their check are those of the base class.
    """
    kinds = int if option in COUNTS else int | float
    sensible = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
    sensible = sensible and (0 < value <= 1e9 or (option == "recovery_rounds" and value == 0))
    if sensible and not (option == "decay" and value > 1) and fades(**{option: value}):
        with pytest.raises(ValueError, match=r"^(recovery_)?lr = .* falls to 10\^-"):
            FedOSD(**{option: value})
    elif sensible and not (option == "decay" and value > 1):
        assert getattr(FedOSD(**{option: value}), option) == value
    else:
        with pytest.raises(ValueError, match=f"^{option} must"):
            FedOSD(**{option: value})


@pytest.mark.parametrize("name", NAMES)
def test_no_method_loses_the_checks_of_the_base_class(name: str) -> None:
    """Some have checks of their own; these must not replace what is checked for all."""
    with pytest.raises(UserError, match="rounds must be above 0, not 0"):
        method(name, rounds=0)
    with pytest.raises(ValueError, match=f"{METHODS[name].__name__} needs a request"):
        method(name).init(clients(), blobs.trained(), None)
