"""Nobody is asked what is settled or known: the decisions are those of the exhaustive search, for fewer passes."""

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest

from fupareto import serial
from fupareto.federation import Federation, Local
from fupareto.federation.questions import Answer, Failure, Question, TrialLosses
from fupareto.methods import FUPareto
from fupareto.methods.base import State
from fupareto.methods.fupareto import method
from fupareto.methods.fupareto.objectives import search
from fupareto.tasks.losses import Loss

from .. import blobs, spies
from ..quadratics import walk


def counted(monkeypatch: pytest.MonkeyPatch, exhaustive: bool) -> tuple[list[State], int]:
    """Return every state of a run, and how many trial losses clients computed."""
    federation, passes = blobs.federation(), 0
    ask = federation.ask

    def counting(questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        nonlocal passes
        for i, answer in ask(questions):
            passes += isinstance(questions[i], TrialLosses)
            yield i, answer

    with monkeypatch.context() as patch:
        patch.setattr(federation, "ask", counting)
        if exhaustive:
            patch.setattr(method, "search", lambda *a, **k: search(*a, **{**k, "exhaustive": True}))
        return walk(FUPareto(lr=0.5, rounds=20, recovery_rounds=10), federation, blobs.trained(), blobs.FORGET), passes


def test_a_veto_settles_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    short, asked = counted(monkeypatch, exhaustive=False)
    whole, exhaustive = counted(monkeypatch, exhaustive=True)
    assert len(short) == len(whole)
    assert all(serial.same(a, b) for a, b in zip(short, whole, strict=True))
    assert any(len(state.record["tried"]) > 1 for state in short[1:]), "no step was ever rejected: nothing was tested"
    assert asked < 0.8 * exhaustive


def test_bytes_are_counted_as_on_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = []
    for exhaustive in (False, True):
        federation = blobs.federation()
        before = dataclasses.replace(federation.traffic)
        counted(monkeypatch, exhaustive)
        traffic.append((federation.traffic.up - before.up, federation.traffic.down - before.down))
    assert traffic[0] == traffic[1]


def test_who_refused_last_is_asked_first() -> None:
    spy = spies.Spy(spies.clients())
    w = blobs.trained()
    steps, losses = (0.2, 0.1), dict.fromkeys(spy.ids, Loss("ce"))
    for refuser in ("2", "1"):
        limits = [{i: -1.0 if i == refuser else 1e9 for i in spy.ids}] * 2
        list(spy.losses(w, w, steps, losses, {}, limits=limits))
    assert [i for i, _ in spy.asked] == ["0", "1", "2", "2", *("2", "0", "1", "1")]


def test_gradients_are_asked_again_only_if_they_may_have_changed() -> None:
    spy = spies.Spy(spies.clients())
    w, ce, mbs = blobs.trained(), dict.fromkeys(spy.ids, Loss("ce")), dict.fromkeys(spy.ids, Loss("mbs"))
    assert spy.gradients(w, ce) is not spy.gradients(w, ce)
    spy.asked.clear()
    first = spy.gradients(w, ce, keep=True)
    assert spy.gradients(w, ce, keep=True) is first
    assert len(spy.asked) == 4

    spy.gradients(w.clone(), ce, keep=True)  # another model, for all that is known
    spy.gradients(w, mbs, keep=True)
    for _ in range(2):  # random, so never the same
        spy.gradients(w, ce, mode="train", seed=1, keep=True)
        spy.gradients(w, ce, Local(0.1), keep=True)
    assert len(spy.asked) == 4 * 7
    assert spy.gradients(w, ce) is not first

    spy.absent = {"1"}
    assert spy.gradients(w, mbs, keep=True).missing
    spy.absent = set()
    assert not spy.gradients(w, mbs).missing


def test_a_round_after_a_failed_one_reuses_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = spies.Spy(spies.clients())
    method = FUPareto(lr=0.5, rounds=20, recovery_rounds=10)
    with monkeypatch.context() as patch:
        patch.setattr(Federation, "_answered", property(lambda self: None, lambda self, value: None))
        plain = walk(method, spies.Spy(spies.clients()), blobs.trained(), blobs.FORGET)
    states = walk(method, spy, blobs.trained(), blobs.FORGET)
    assert all(serial.same(a, b) for a, b in zip(states, plain, strict=True))
    stayed = [a.w is b.w and a.stage == b.stage for a, b in pairwise(states[1:])]
    assert any(stayed), "the model always moved: nothing was tested"
