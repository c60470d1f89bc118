"""A veto settles a trial step: the decisions are those of the exhaustive search, for fewer forward passes."""

import dataclasses
from collections.abc import Iterator, Mapping

import pytest

from fupareto import serial
from fupareto.federation.questions import Answer, Failure, Question, TrialLosses
from fupareto.methods import FUPareto, fupareto
from fupareto.methods.base import State
from fupareto.methods.objectives import search

from . import blobs
from .quadratics import walk


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
            patch.setattr(fupareto, "search", lambda *a, **k: search(*a, **{**k, "exhaustive": True}))
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
