"""Renewal: the mixture, training with the retained clients only, when it ends, and what happens when it diverges."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from fupareto import experiment, serial
from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.federation.questions import Answer, Evaluate, Failure, Question, Train, Trained
from fupareto.federation.request import Request
from fupareto.methods.finetune import FineTune
from fupareto.methods.renew import Renew, RenewState, mixed
from fupareto.randomness import derive

from . import blobs
from .quadratics import QuadraticFederation, linear, vector, walk
from .spies import Spy, clients

STAY = {"2", "3"}


def method(**options: Any) -> Renew:
    return Renew(**{"training_rounds": 20, "lr": 0.3, "batch_size": 4, **options})


def finished(spy: Spy, seed: int = 0, **options: Any) -> list[Any]:
    return walk(method(**options), spy, blobs.trained(), blobs.FORGET, seed)


NUMBERS = st.lists(st.floats(-5, 5), min_size=3, max_size=3).map(lambda values: vector(*values))


@given(NUMBERS, NUMBERS, st.floats(0.01, 10))
def test_a_mixture_lies_between_both_with_as_much_of_the_old_as_remains(
    old: Tensor, new: Tensor, remains: float
) -> None:
    assume(float(old.norm()) > 0.01 < float(new.norm()))
    between = mixed(old, new, remains)
    left = (between - new).norm() * old.norm()  # (1 - a) ||old - new|| ||old||
    fresh = (between - old).norm() * new.norm()  # a ||old - new|| ||new||
    torch.testing.assert_close(left, remains * fresh, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close((between - old).norm() + (new - between).norm(), (new - old).norm())


@given(NUMBERS, st.floats(0.1, 10))
def test_the_longer_a_tensor_has_become_the_less_of_it_is_left(old: Tensor, factor: float) -> None:
    assume(float(old.norm()) > 0.01)
    new = vector(1.0, -2.0, 0.5)
    one, other = (mixed(times * old, new, 0.6) for times in (1.0, factor))
    shares = [float((m - new).norm() / (times * old - new).norm()) for m, times in ((one, 1.0), (other, factor))]
    assert shares[0] == pytest.approx(shares[1], abs=1e-4) or (shares[0] > shares[1]) == (factor > 1)


def test_what_is_zero_becomes_fresh_and_what_starts_at_zero_goes_back_there() -> None:
    some = vector(1.0, -2.0)
    assert torch.equal(mixed(0 * some, some, 0.6), some)
    assert torch.equal(mixed(some, 0 * some, 0.6), 0 * some)


def test_it_is_fine_tuning_of_the_mixture() -> None:
    spy = Spy(clients())
    states = finished(spy, seed=3)
    first = next(q.w for _, q in spy.asked if isinstance(q, Train))
    tuned = walk(FineTune(rounds=len(states) - 1, lr=0.3, batch_size=4), clients(), first, blobs.FORGET, seed=3)
    assert all(torch.equal(a.w, b.w) for a, b in zip(states[1:], tuned[1:], strict=True))
    fresh = spy.fresh(derive(3, "renew"))
    for old, new, both in zip(*(spy.layout.named(w).values() for w in (blobs.trained(), fresh, first)), strict=True):
        assert torch.equal(both, mixed(old, new, 0.6))
    assert {s.phase for s in states[1:]} == {"renew"}


def test_the_forget_clients_are_never_asked_so_they_may_be_gone() -> None:
    spy = Spy(clients())
    states = finished(spy)
    assert spy.who() == STAY
    spy.absent = set(blobs.FORGET)
    assert torch.equal(finished(spy)[-1].w, states[-1].w)


def test_it_ends_when_the_retained_clients_are_as_well_off_as_before() -> None:
    spy = Spy(clients())
    states = finished(spy, training_rounds=500)
    *others, last = [s.record["losses"] for s in states[1:]]
    before = states[-1].known
    assert set(before) == STAY
    assert len(states) - 1 < method(training_rounds=500).budget
    assert sum(last.values()) <= sum(before.values())
    assert all(sum(losses.values()) > sum(before.values()) for losses in others)


@given(st.integers(1, 500), st.floats(0.01, 1.0))
def test_its_budget_is_a_share_of_the_trainings_rounds(rounds: int, share: float) -> None:
    budget = method(training_rounds=rounds, rounds_share=share).budget
    assert budget - 1 < share * rounds <= budget
    assert budget >= 1


def test_a_training_that_diverges_starts_again_at_half_the_rate() -> None:
    ruined = {0, 1}  # rounds
    rates: list[float] = []

    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        if isinstance(question, Train) and isinstance(answer, Trained) and len(rates) in ruined:
            return dataclasses.replace(answer, w=answer.w * torch.nan)
        return answer

    spy = Spy(clients(), change=change)
    state = method().init(spy, blobs.trained(), Request(blobs.FORGET))
    starts = []
    while not state.done:
        state = method().step(spy, state)
        rates.append(state.rate)
        starts.append(state.w)
    assert rates == pytest.approx([0.15, 0.075, 0.075, 0.075])
    assert torch.equal(starts[0], starts[1])  # the renewed model again
    assert not torch.equal(starts[2], starts[1])


def test_an_outage_changes_nothing() -> None:
    spy = Spy(clients())
    state = method().step(spy, method().init(spy, blobs.trained(), Request(blobs.FORGET)))
    spy.absent = STAY
    after = method().step(spy, state)
    assert torch.equal(after.w, state.w)
    assert after.rate == state.rate
    assert (after.record["step"], set(after.record["missing"])) == (None, STAY)


def test_who_did_not_tell_its_loss_at_w0_does_not_decide_on_the_end() -> None:
    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        first = isinstance(question, Evaluate) and torch.equal(question.w, blobs.trained())
        return Failure("late") if first and client == "3" else answer

    states = finished(Spy(clients(), change=change))
    assert set(states[1].known) == {"2"}
    assert states[1].record["missing"] == {"3": "late"}
    assert set(states[-1].record["losses"]) == {"2"}


def test_it_resumes_from_what_was_saved() -> None:
    states = finished(Spy(clients()), seed=5)
    middle = serial.from_bytes({"RenewState": RenewState}, serial.to_bytes(states[2]))
    spy = Spy(clients())
    while not middle.done:
        middle = method().step(spy, middle)
    assert torch.equal(middle.w, states[-1].w)


def test_the_fresh_model_is_of_the_seed() -> None:
    one, same, other = (finished(Spy(clients()), seed=k)[1].w for k in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_every_option_changes_the_result() -> None:
    plain = finished(Spy(clients()))[-1].w
    changed: dict[str, Any] = {
        "remains": 0.9,
        "rounds_share": 0.1,
        "lr": 0.1,
        "decay": 0.9,
        "epochs": 2,
        "batch_size": 3,
    }
    for name, value in {**changed, "training_rounds": 10, "participation": 0.5}.items():
        assert not torch.equal(finished(Spy(clients()), **{name: value})[-1].w, plain), name


def test_its_settings_are_the_trainings() -> None:
    file = Experiment.model_validate({"train": {"lr": 0.7, "decay": 0.98, "epochs": 3, "batch_size": 11, "rounds": 50}})
    wanted = Renew(training_rounds=50, lr=0.7, decay=0.98, epochs=3, batch_size=11)
    assert experiment.forgetter(file, "renew", {}) == wanted
    assert wanted.budget == 10


@pytest.mark.parametrize("options", [{"remains": 0.0}, {"rounds_share": 1.1}, {"rounds_share": 0.0}, {"lr": 0.0}])
def test_senseless_hyper_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        method(**options)


def test_an_engine_without_fresh_models_says_so() -> None:
    federation = QuadraticFederation(1, a=linear([1.0]), b=linear([1.0]))
    with pytest.raises(UserError, match="cannot make a newly initialised model"):
        method().step(federation, method().init(federation, vector(0.0), Request(("a",))))
