"""One client after the other is the same as one request after the other."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from fupareto import serial
from fupareto.errors import NotApplicable, UserError
from fupareto.federation.request import Request
from fupareto.methods import Method
from fupareto.methods.fedau import FedAU
from fupareto.methods.federaser import FedEraser
from fupareto.methods.fedosd import FedOSD
from fupareto.methods.fupga import FUPGA
from fupareto.methods.registry import find
from fupareto.methods.retrain import Retrain
from fupareto.methods.sequential import Sequential, SequentialState
from fupareto.randomness import derive
from presets import guard

from . import blobs
from .spies import Spy, clients, record

ORDER = ("2", "0")
METHODS: list[Method] = [
    guard(rounds=3, recovery_rounds=2, lr=0.1),
    FedOSD(rounds=2, recovery_rounds=1, lr=0.01, recovery_lr=0.01, batch_size=4),
    Retrain(rounds=2, batch_size=4),
    FedEraser(rounds=3, recovery_rounds=0, batch_size=4),
]


def walk(method: Sequential, federation: Spy, order: tuple[str, ...] = ORDER, seed: int = 3) -> list[SequentialState]:
    states = [method.init(federation, blobs.trained(), Request(order), seed)]
    while not states[-1].done:
        assert len(states) <= method.budget
        states.append(method.step(federation, states[-1]))
    return states


@pytest.mark.parametrize("inner", METHODS, ids=lambda m: m.name)
def test_it_is_the_requests_one_after_the_other(tmp_path: Path, inner: Method) -> None:
    federation = Spy(clients(), record(tmp_path)[0])
    states = walk(Sequential(inner, 2), federation)
    w, by_hand = blobs.trained(), []
    for turn, client in enumerate(ORDER):
        request = Request((client,), left=ORDER[:turn])
        state: Any = inner.init(federation, w, request, derive(3, "request", turn) if turn else 3)
        while not state.done:
            state = inner.step(federation, state)
            by_hand.append((client, state))
        w = state.w
    assert len(by_hand) == len(states) - 1
    for (client, wanted), found in zip(by_hand, states[1:], strict=True):
        assert torch.equal(found.w, wanted.w)
        assert found.phase == wanted.phase
        assert found.record == {**wanted.record, "request": client}
    assert [s.round for s in states] == list(range(len(states)))
    assert states[-1].turn == 2


def test_the_first_request_alone_is_the_first_half() -> None:
    inner = METHODS[1]
    both, alone = (walk(Sequential(inner, len(order)), Spy(clients()), order) for order in (ORDER, ORDER[:1]))
    for one, two in zip(alone[1:], both[1:], strict=False):
        assert torch.equal(one.w, two.w)
    assert alone[-1].done
    assert not both[len(alone) - 1].done


def test_whoever_was_forgotten_is_never_asked_again() -> None:
    federation = Spy(clients())
    method = Sequential(FedOSD(rounds=2, recovery_rounds=1, batch_size=4), 3)
    state = method.init(federation, blobs.trained(), Request(("3", "0", "1")))
    seen = []
    while not state.done:
        turn, stage = state.turn, state.stage
        federation.asked.clear()
        state = method.step(federation, state)
        seen.append((turn, stage, federation.who()))
    assert seen == [
        *[(0, "unlearned", {"0", "1", "2", "3"})] * 2,
        (0, "recovered", {"0", "1", "2"}),
        *[(1, "unlearned", {"0", "1", "2"})] * 2,
        (1, "recovered", {"1", "2"}),
        *[(2, "unlearned", {"1", "2"})] * 2,
        (2, "recovered", {"2"}),
    ]


def test_whoever_an_earlier_request_forgot_is_never_asked() -> None:
    """Nor retained again: what it had taught would come back."""
    federation = Spy(clients())
    method = Sequential(FedOSD(rounds=1, recovery_rounds=1, batch_size=4), 2)
    state = method.init(federation, blobs.trained(), Request(("0", "1"), left=("3",)))
    while not state.done:
        state = method.step(federation, state)
    assert federation.who() == {"0", "1", "2"}
    assert state.retained == ("2",)


def test_the_order_is_the_requests_and_it_matters() -> None:
    method = Sequential(METHODS[1], 2)
    one, two = walk(method, Spy(clients()), ("2", "0")), walk(method, Spy(clients()), ("0", "2"))
    assert [s.record["request"] for s in one[1:]] == ["2"] * 3 + ["0"] * 3
    assert [s.record["request"] for s in two[1:]] == ["0"] * 3 + ["2"] * 3
    assert not torch.equal(one[-1].w, two[-1].w)
    assert one[0].forget == ("2", "0")
    assert one[0].retained == ("1", "3")


@pytest.mark.parametrize("inner", METHODS[:2], ids=lambda m: m.name)
def test_resuming_anywhere_gives_the_same_bits(inner: Method) -> None:
    method = Sequential(inner, 2)
    states = walk(method, Spy(clients()))
    for cut, kept in enumerate(states[:-1]):
        state: SequentialState = serial.from_bytes({"SequentialState": SequentialState}, serial.to_bytes(kept))
        elsewhere = Spy(clients())
        for wanted in states[cut + 1 :]:
            state = method.step(elsewhere, state)
            assert serial.same(*(dataclasses.replace(s, inner=torch.empty(0)) for s in (state, wanted)))
            assert serial.same(*(method._unpack(s.inner) for s in (state, wanted)))


def test_the_budget_is_that_of_all_requests() -> None:
    assert Sequential(FedOSD(rounds=7, recovery_rounds=5), 3).budget == 36
    assert Sequential(find("fupareto"), 3).expected == 3 * 60


@pytest.mark.parametrize(
    "request_", [None, Request(classes=(1,)), Request(samples={"0": (1,)}), Request(("0",))], ids=str
)
def test_only_for_requests_that_name_clients(request_: Request | None) -> None:
    with pytest.raises(UserError, match="sequential unlearning needs a request for clients"):
        Sequential(METHODS[1], 2).init(clients(), blobs.trained(), request_)


def test_somebody_must_stay_and_be_known() -> None:
    with pytest.raises(UserError, match="forgets everything"):
        Sequential(METHODS[1], 4).init(clients(), blobs.trained(), Request(("0", "1", "2", "3")))
    with pytest.raises(UserError, match="no client 'x'"):
        Sequential(METHODS[1], 2).init(clients(), blobs.trained(), Request(("0", "x")))


def test_a_client_that_cannot_be_forgotten_is_known_before_the_first_is(tmp_path: Path) -> None:
    history, models = record(tmp_path, heads=("0",))
    with pytest.raises(UserError, match="no second head was trained for client 2, only for 0"):
        Sequential(FedAU(), 2).init(Spy(clients(), history), models[-1], Request(("0", "2")))


def test_fupga_cannot_go_on_from_a_model_that_training_did_not_end_with(tmp_path: Path) -> None:
    history, models = record(tmp_path)
    with pytest.raises(NotApplicable, match="together"):
        Sequential(FUPGA(), 2).init(Spy(clients(), history), models[-1], Request(("0", "2")))
