"""Renewal: the mixture, training with momentum by the retained clients only, and what happens when it diverges."""

import dataclasses
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import fupareto
from fupareto import experiment, parameters, serial
from fupareto.config import Experiment
from fupareto.errors import Diverged, UserError
from fupareto.federation import SimulatedFederation
from fupareto.federation.collected import Local
from fupareto.federation.questions import Answer, Evaluate, Evaluated, Failure, Question, Train, Trained
from fupareto.federation.request import Request
from fupareto.methods import FedAvg
from fupareto.methods.finetune import FineTune
from fupareto.methods.renew import Renew, RenewState, mixed
from fupareto.randomness import derive
from fupareto.run.directory import Run
from fupareto.tasks.losses import Loss

from . import blobs
from .quadratics import QuadraticFederation, linear, vector, walk
from .spies import Spy, clients, points

STAY = {"2", "3"}


TRAINING = FedAvg(rounds=20, lr=0.3, batch_size=4)


def method(**options: Any) -> Renew:
    return Renew(**{"rounds_share": 0.2, "training": TRAINING, **options})


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


def test_with_nothing_left_the_result_does_not_depend_on_what_is_forgotten() -> None:
    one, other = (
        walk(method(remains=0.0), clients(), w0, blobs.FORGET)[-1] for w0 in (blobs.trained(), -blobs.trained())
    )
    assert torch.equal(one.w, other.w)
    assert not torch.equal(one.w, finished(Spy(clients()))[-1].w)


def test_without_momentum_it_is_fine_tuning_of_the_mixture() -> None:
    spy = Spy(clients())
    states = finished(spy, seed=3, momentum=0.0, averaged=0.0)
    first = next(q.w for _, q in spy.asked if isinstance(q, Train))
    tuned = walk(FineTune(rounds=len(states) - 1, lr=0.3, batch_size=4), clients(), first, blobs.FORGET, seed=3)
    for a, b in zip(states[1:], tuned[1:], strict=True):
        torch.testing.assert_close(a.w, b.w)
    fresh = spy.fresh(derive(3, "renew"))
    for old, new, both in zip(*(spy.layout.named(w).values() for w in (blobs.trained(), fresh, first)), strict=True):
        assert torch.equal(both, mixed(old, new, method().remains))
    assert {s.phase for s in states[1:]} == {"renew"}


def test_the_server_adds_momentum_that_grows_and_falls_back() -> None:
    spy, engine, velocity = Spy(clients()), clients(), torch.zeros_like(blobs.trained())
    states = finished(spy, seed=3, momentum=0.7, averaged=0.0)
    starts = list({id(q.w): q.w for _, q in spy.asked if isinstance(q, Train)}.values())  # one model per round
    assert len(starts) == len(states) - 1 == 4
    for k, (before, state) in enumerate(zip(starts, states[1:], strict=True)):
        local = Local(0.3 * 0.999**k, 1, 4, derive(3, "round", k, "train"))
        mean = engine.train_mean(before, ("2", "3"), Loss("ce"), local).w
        assert mean is not None
        velocity = (0.0, 0.35, 0.35, 0.0)[k] * velocity + (before - mean)
        torch.testing.assert_close(state.w, before - velocity)
        assert state.record["lr"] == pytest.approx(local.lr)


@given(st.integers(1, 60), st.floats(0.0, 0.99))
def test_momentum_rises_to_the_middle_and_the_first_and_last_rounds_have_none(rounds: int, momentum: float) -> None:
    renewal = method(training=FedAvg(rounds=rounds, lr=0.3), rounds_share=1.0, momentum=momentum)
    course = [renewal.momentum_in(k) for k in range(rounds)]
    assert course == pytest.approx(course[::-1])
    assert course[0] == course[-1] == 0
    assert all(early <= late for early, late in pairwise(course[: (rounds + 1) // 2]))
    assert momentum * (1 - 2 / rounds) - 1e-9 <= max(course) <= momentum


def test_the_last_round_is_an_ordinary_one() -> None:
    """So the model ends where further training at the same rate goes on."""
    *_, before, last = finished(Spy(clients()), averaged=0.0)
    assert torch.allclose(last.w, dataclasses.replace(TRAINING, rounds=4).step(Spy(clients()), before).w, atol=1e-6)


@cache
def every_model() -> list[Any]:
    """Return the states of a renewal that keeps its last model."""
    return finished(Spy(clients()), averaged=0.0)


@settings(max_examples=25)
@given(st.integers(0, 100))
def test_what_is_kept_is_the_mean_of_the_last_models(percent: int) -> None:
    """A share of them, rounded up; training itself does not change."""
    last = every_model()
    kept = finished(Spy(clients()), averaged=percent / 100)
    count = max(1, -(-percent * 4 // 100))
    torch.testing.assert_close(kept[-1].w, torch.stack([state.w for state in last[-count:]]).mean(0))
    assert all(torch.equal(a.w, b.w) for a, b in zip(kept[:-1], last[:-1], strict=True))


def test_models_from_before_a_start_are_not_averaged() -> None:
    states = ruined_in({1}, averaged=1.0)
    torch.testing.assert_close(states[-1].w, (states[3].w + ruined_in({1}, averaged=0.0)[-1].w) / 2)


def test_buffers_are_averaged_without_momentum() -> None:
    """With momentum a variance that falls to 0 would become negative."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    held = {i: {"train": points(k, 12), "test": points(k, 3)} for k, i in enumerate("abc")}
    federation = SimulatedFederation(module, held, workers=1)
    w0 = parameters.read(module)
    named = federation.layout.named(w0)
    (name,) = (n for n in named if n.endswith("running_var"))
    w0 = federation.layout.flat({**named, name: 1e4 * named[name]})
    spy = Spy(federation)
    states = walk(method(momentum=0.9, rounds_share=0.5, averaged=0.0), spy, w0, ("a",))
    for before, after in pairwise(states[1:]):
        local = Local(after.record["lr"], 1, 4, derive(0, "round", before.round, "train"))
        mean = federation.train_mean(before.w, ("b", "c"), Loss("ce"), local).w
        assert mean is not None
        trainable = federation.layout.trainable
        torch.testing.assert_close(after.w[trainable:], mean[trainable:])
        assert after.done or not torch.allclose(after.w[:trainable], mean[:trainable])
        assert float(federation.layout.named(after.w)[name].min()) >= 0


def test_the_forget_clients_are_never_asked_so_they_may_be_gone() -> None:
    spy = Spy(clients())
    states = finished(spy)
    assert spy.who() == STAY
    spy.absent = set(blobs.FORGET)
    assert torch.equal(finished(spy)[-1].w, states[-1].w)


@given(st.integers(1, 5000), st.integers(1, 100))
def test_its_rounds_are_a_share_of_the_trainings(rounds: int, percent: int) -> None:
    """In whole numbers, in which .07 of 100 is 7."""
    renewal = method(training=FedAvg(rounds=rounds), rounds_share=percent / 100)
    assert renewal.planned == -(-percent * rounds // 100)
    assert renewal.budget == renewal.planned + renewal.window


def test_it_runs_for_the_planned_rounds() -> None:
    assert len(finished(Spy(clients()))) - 1 == method().planned == 4


class Measuring:
    """Changes what retained clients measure: ``right`` of a thousand samples with the k-th model that is evaluated."""

    def __init__(self, *right: int, absent: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.right, self.absent, self.models = right, absent, list[Tensor]()

    def __call__(self, client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        if not isinstance(question, Evaluate):
            return answer
        if client in self.absent:
            return Failure("no answer in time")
        if not any(torch.equal(question.w, w) for w in self.models):
            self.models.append(question.w)
        return Evaluated({"test": {"samples": 1000, "right": self.right[len(self.models) - 1], "loss": 1.0}})


def prolonged(measuring: Measuring, **options: Any) -> list[Any]:
    spy = Spy(clients(), change=measuring)
    states = finished(spy, averaged=0.5, **options)
    assert {i for i, question in spy.asked if isinstance(question, Evaluate)} <= STAY
    return states


def test_retained_clients_that_lost_accuracy_get_further_ordinary_rounds() -> None:
    """As many as were averaged, whose mean is kept instead; they go on from the last model, not from the mean."""
    measuring = Measuring(900, 870)
    states = prolonged(measuring)
    plain = finished(Spy(clients()), averaged=0.0)
    assert len(states) - 1 == 4 + 2 == method(averaged=0.5).budget
    assert method(averaged=0.5).expected == 4
    assert all(torch.equal(a.w, b.w) for a, b in zip(states[:5], plain, strict=True))
    assert states[4].record["held_out"] == pytest.approx([0.9, 0.87])
    assert "rounds added: 2" in states[4].record["note"]
    expected, models = plain[-1], []
    for _ in range(2):
        expected = dataclasses.replace(TRAINING, rounds=6).step(Spy(clients()), expected)
        models.append(expected.w)
    torch.testing.assert_close(states[5].w, models[0])
    torch.testing.assert_close(states[6].w, torch.stack(models).mean(0))
    initial, renewed = measuring.models
    assert torch.equal(initial, blobs.trained())
    torch.testing.assert_close(renewed, torch.stack([state.w for state in plain[-2:]]).mean(0))


@pytest.mark.parametrize("measured", [Measuring(900, 880), Measuring(900, 950), Measuring(900, 0, absent=STAY)])
def test_without_a_loss_of_more_than_two_points_there_are_none(measured: Measuring) -> None:
    assert len(prolonged(measured)) - 1 == 4


def test_a_fresh_model_is_not_compared_with_the_one_before() -> None:
    """Its number of rounds would depend on what is forgotten."""
    measuring = Measuring(900, 100)
    assert len(prolonged(measuring, remains=0.0)) - 1 == 4 == method(remains=0.0).budget
    assert measuring.models == []


def test_a_client_that_cannot_be_measured_is_left_out() -> None:
    assert len(prolonged(Measuring(900, 870, absent={"2"}))) - 1 == 6


def answering(measuring: Measuring, useless: Callable[[Answer], Answer | Failure]) -> list[Any]:
    """Run renewal with further rounds in which what clients trained is ``useless``."""
    seen = 0

    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        nonlocal seen
        seen += isinstance(question, Train)
        if isinstance(answer, Trained) and seen > 4 * len(STAY):
            return useless(answer)
        return measuring(client, question, answer)

    return finished(Spy(clients(), change=change), averaged=0.5)


@pytest.mark.parametrize(
    "useless",
    [
        lambda answer: dataclasses.replace(answer, w=answer.w * torch.nan),
        lambda answer: Failure("no answer in time"),
    ],
    ids=["diverged", "absent"],
)
def test_further_rounds_in_which_nobody_trains_leave_the_mean(useless: Callable[[Answer], Answer | Failure]) -> None:
    """Starting again would leave a mixture that hardly trained, and the last model alone is worse than the mean."""
    measuring = Measuring(900, 100)
    states = answering(measuring, useless)
    assert len(states) - 1 == 6
    assert torch.equal(states[-1].w, measuring.models[1])


def test_who_does_not_measure_is_reported() -> None:
    states = prolonged(Measuring(900, 950, absent={"2"}))
    assert states[-1].record["missing"] == {"2": "no answer in time"}
    assert prolonged(Measuring(900, 0, absent=STAY))[-1].record["held_out"] == []


@pytest.mark.parametrize("rounds", [4, 8, 12])
def test_a_renewal_that_learnt_nothing_is_not_complete(rounds: int, tmp_path: Path) -> None:
    """With few rounds, too, in which it is not compared with w0 either."""
    renewal = Renew(training=FedAvg(rounds=rounds, lr=1e9, batch_size=4))
    assert renewal.planned <= 3
    with pytest.raises(Diverged):
        fupareto.unlearn(clients(), blobs.trained(), blobs.FORGET, renewal, out=tmp_path / "run")
    assert not Run.open(tmp_path / "run").finished


def test_a_training_that_diverges_starts_again_at_half_the_rate() -> None:
    ruined = {0, 1}  # rounds
    rates: list[float] = []

    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        if isinstance(question, Train) and isinstance(answer, Trained) and len(rates) in ruined:
            return dataclasses.replace(answer, w=answer.w * torch.nan)
        return answer

    spy = Spy(clients(), change=change)
    state = method().init(spy, blobs.trained(), Request(blobs.FORGET))
    starts, velocities = [], []
    while not state.done:
        state = method().step(spy, state)
        rates.append(state.rate)
        starts.append(state.w)
        velocities.append(float(state.velocity.norm()))
    assert rates == pytest.approx([0.15, 0.075, 0.075, 0.075])
    assert torch.equal(starts[0], starts[1])  # the renewed model again
    assert all(velocity == 0 for velocity in velocities[:2])
    assert not torch.equal(starts[2], starts[1])


def ruined_in(rounds: set[int], absent: set[str] = frozenset(), **options: Any) -> list[Any]:  # type: ignore[assignment]
    """Run renewal in which every model of some rounds has diverged, and some clients never answer."""
    states: list[Any] = []

    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        if client in absent:
            return Failure("no answer in time")
        if isinstance(answer, Trained) and len(states) - 1 in rounds:
            return dataclasses.replace(answer, w=answer.w * torch.nan)
        return answer

    spy = Spy(clients(), change=change)
    renewal = method(**options)
    states.append(renewal.init(spy, blobs.trained(), Request(blobs.FORGET)))
    while not states[-1].done:
        states.append(renewal.step(spy, states[-1]))
    return states


def test_an_absent_client_does_not_keep_it_from_starting_again() -> None:
    states = ruined_in({0}, absent={"3"})
    assert [state.rate for state in states[:5]] == pytest.approx([0.3, 0.15, 0.15, 0.15, 0.15])
    assert states[-1].record["step"] is not None


def test_divergence_in_the_last_round_leaves_the_model_of_the_round_before() -> None:
    states = ruined_in({3})
    assert states[-1].record["step"] is None
    assert torch.equal(states[-1].w, states[-2].w)
    assert not torch.equal(states[-1].w, ruined_in({0})[1].w)  # the untrained mixture


def test_momentum_grows_anew_after_a_start() -> None:
    """After a start in round 2 it is 0, so the next step is that of the retained clients alone."""
    states = ruined_in({1})
    again = states[2]
    assert again.started == 2
    training = dataclasses.replace(TRAINING, lr=again.rate)
    plain = training.step(Spy(clients()), again)
    assert torch.allclose(states[3].w, plain.w, atol=1e-7)


def test_an_outage_changes_nothing() -> None:
    spy = Spy(clients())
    state = method().step(spy, method().init(spy, blobs.trained(), Request(blobs.FORGET)))
    spy.absent = STAY
    after = method().step(spy, state)
    assert torch.equal(after.w, state.w)
    assert after.rate == state.rate
    assert (after.record["step"], set(after.record["missing"])) == (None, STAY)


def test_it_resumes_from_what_was_saved() -> None:
    states = finished(Spy(clients()), seed=5)
    middle = serial.from_bytes({"RenewState": RenewState}, serial.to_bytes(states[2]))
    spy = Spy(clients())
    while not middle.done:
        middle = method().step(spy, middle)
    assert torch.equal(middle.w, states[-1].w)


@pytest.mark.parametrize("cut", [3, 4, 5])
def test_it_resumes_before_and_in_further_rounds(cut: int) -> None:
    states = prolonged(Measuring(900, 870))
    spy = Spy(clients(), change=Measuring(900, 870))
    middle = serial.from_bytes({"RenewState": RenewState}, serial.to_bytes(states[cut]))
    while not middle.done:
        middle = method(averaged=0.5).step(spy, middle)
    assert middle.round == 6
    assert torch.equal(middle.w, states[-1].w)


def test_the_fresh_model_is_of_the_seed() -> None:
    one, same, other = (finished(Spy(clients()), seed=k)[1].w for k in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_every_option_changes_the_result() -> None:
    plain = finished(Spy(clients()))[-1].w
    changed: dict[str, Any] = {"remains": 0.9, "rounds_share": 0.1, "momentum": 0.0, "averaged": 0.0}
    trainings = [{"lr": 0.1}, {"decay": 0.9}, {"epochs": 2}, {"batch_size": 3}, {"rounds": 10}, {"participation": 0.5}]
    cases = [{k: v} for k, v in changed.items()]
    cases += [{"training": dataclasses.replace(TRAINING, **options)} for options in trainings]  # type: ignore[arg-type]
    assert {*changed, "training"} == {f.name for f in dataclasses.fields(Renew)}
    for case in cases:
        assert not torch.equal(finished(Spy(clients()), **case)[-1].w, plain), case


def test_its_training_is_that_of_the_experiment() -> None:
    file = Experiment.model_validate({"train": {"lr": 0.7, "decay": 0.98, "epochs": 3, "batch_size": 11, "rounds": 50}})
    wanted = Renew(training=FedAvg(rounds=50, lr=0.7, decay=0.98, epochs=3, batch_size=11))
    assert experiment.forgetter(file, "renew", {}) == wanted
    assert wanted.planned == 13


@pytest.mark.parametrize(
    "options",
    [
        {"remains": -0.1},
        {"rounds_share": 1.1},
        {"rounds_share": 0.0},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"averaged": 1.1},
        {"averaged": -0.1},
        {"training": 3},
    ],
)
def test_senseless_hyper_parameters_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        method(**options)


def test_an_engine_without_fresh_models_says_so() -> None:
    federation = QuadraticFederation(1, a=linear([1.0]), b=linear([1.0]))
    with pytest.raises(UserError, match="cannot make a newly initialised model"):
        method().step(federation, method().init(federation, vector(0.0), Request(("a",))))
