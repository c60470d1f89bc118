"""Wrappers: kept answers change nothing but who is asked; attendance; history through a stack of wrappers."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fupareto import serial
from fupareto.federation import Federation, Local, Request
from fupareto.federation.history import History, Plan
from fupareto.federation.questions import Answer, Failure, Gradient, Question
from fupareto.federation.recording import WithHistory, history_of
from fupareto.federation.wrappers import Attendance, KeepingAnswers, Wrapper
from fupareto.tasks.losses import Loss
from presets import guard

from .engines import FaultyFederation, silent
from .worlds import FORGET, clients, dropping, start, world

CE, MBS = Loss("ce"), Loss("mbs")
W = start()
METHOD = guard(lr=1.0, rounds=12, recovery_rounds=2)


class Counting(Wrapper):
    """Counts the gradients that clients are asked for."""

    def __init__(self, inner: Federation) -> None:
        super().__init__(inner)
        self.gradients_asked = 0

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        self.gradients_asked += sum(isinstance(q, Gradient) for q in questions.values())
        return self.inner.ask(questions)


def test_kept_answers_are_returned_only_to_the_same_question_and_only_if_it_is_repeated() -> None:
    counting = Counting(world())
    kept = KeepingAnswers(counting)
    ce, mbs = dict.fromkeys(kept.ids, CE), dict.fromkeys(kept.ids, MBS)
    first = kept.gradients(W, ce, keep=True)
    assert kept.gradients(W, ce, keep=True, repeated=True) is first
    assert counting.gradients_asked == 6
    assert kept.gradients(W, ce, keep=True) is not first  # not said to be repeated, so asked
    assert kept.gradients(W.clone(), ce, keep=True, repeated=True) is not first  # another model, for all that is known
    again = kept.gradients(W, mbs, keep=True, repeated=True)  # as after a restart
    assert kept.gradients(W, mbs, repeated=True) is again
    kept.gradients(W, mbs)  # not kept
    assert kept.gradients(W, mbs, repeated=True) is not again


def test_answers_are_not_kept_while_somebody_is_missing() -> None:
    faulty = FaultyFederation(world(), {"c1": silent})
    kept = KeepingAnswers(faulty)
    objectives = dict.fromkeys(kept.ids, CE)
    assert kept.gradients(W, objectives, keep=True).missing
    faulty.faults = {}
    assert not kept.gradients(W, objectives, keep=True, repeated=True).missing


def test_a_repeated_question_is_not_counted_again_whether_or_not_answers_were_kept() -> None:
    for federation in (world(), KeepingAnswers(world())):
        objectives = dict.fromkeys(federation.ids, CE)
        federation.gradients(W, objectives, keep=True)
        before = (federation.traffic.up, federation.traffic.down)
        federation.gradients(W, objectives, keep=True, repeated=True)
        assert (federation.traffic.up, federation.traffic.down) == before


def walk(federation: Federation, restart: bool) -> list[Any]:
    """Step FUPareto to its end; with ``restart`` every round is by a new process that has kept nothing."""
    kept = KeepingAnswers(federation)
    states: list[Any] = [METHOD.init(kept, W, Request(FORGET), seed=3)]
    while not states[-1].done:
        kept = KeepingAnswers(federation) if restart else kept
        states.append(METHOD.step(kept.at(states[-1].round), states[-1]))
    return states


def test_a_run_that_keeps_answers_is_the_same_as_one_restarted_every_round() -> None:
    ends = []
    for restart in (False, True):
        counting = Counting(world())
        states = walk(counting, restart)
        ends.append((states, counting.gradients_asked, (counting.traffic.up, counting.traffic.down)))
    (one, few, bytes_), (two, many, same_bytes) = ends
    assert all(serial.same(a, b) for a, b in zip(one, two, strict=True))
    assert any(a.w is b.w and a.stage == b.stage for a, b in pairwise(one[1:])), "the model always moved"
    assert few < many
    assert bytes_ == same_bytes


def test_gradients_that_are_random_are_never_repeated() -> None:
    for options in ({"gradient": "pseudo"}, {"search_mode": "train"}):
        method = guard(lr=8.0, rounds=4, recovery_rounds=0, **options)
        counting = Counting(world(dropping))
        state = method.init(counting, start(dropping), Request(FORGET), seed=3)
        while not state.done:
            before = counting.traffic.down
            state = method.step(counting, state)
            assert counting.traffic.down - before >= 6 * 4 * counting.layout.size


def test_attendance_knows_who_was_asked_and_who_answered() -> None:
    present = Attendance(KeepingAnswers(FaultyFederation(world(), {"c1": silent})))
    present.train_mean(W, ("c0", "c1"), CE, Local(0.1))
    assert (present.asked, present.answered) == ({"c0", "c1"}, {"c0"})
    present.gradients(W, {"c2": CE, "c1": CE})
    assert (present.asked, present.answered) == ({"c0", "c1", "c2"}, {"c0", "c2"})


def test_a_history_is_found_through_wrappers(tmp_path: Path) -> None:
    history = History.create(tmp_path, Plan((), tuple(clients()), 3), 0)
    stack = KeepingAnswers(Counting(WithHistory(world(), history)))
    found = history_of(stack.at(2))
    assert found is not None
    assert found.path == history.path
    assert history_of(world()) is None
    assert history_of(KeepingAnswers(world())) is None


def test_a_history_keeps_what_it_is_limited_to(tmp_path: Path) -> None:
    History.create(tmp_path, Plan(("rewind", "fedau"), tuple(clients()), 3), 0)
    limited = History.open(tmp_path, ("rewind",))
    assert limited is not None
    found = history_of(WithHistory(world(), limited))
    assert found is not None
    assert found.plan.parts == ("rewind",)


@pytest.mark.parametrize("wrapper", [Wrapper, KeepingAnswers, Attendance])
def test_a_wrapper_of_a_divided_federation_has_its_clients(wrapper: type[Wrapper]) -> None:
    wrapped = wrapper(world()).divided(Request(samples={"c1": (0, 3)}))
    assert "c1/forget" in wrapped.ids
    assert wrapped.gradients(W, {"c1/forget": CE}).ids == ("c1/forget",)
