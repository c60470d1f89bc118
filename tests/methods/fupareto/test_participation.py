"""A share of those who stay in every round: who is drawn, who is asked, and what lasts from one sample to the next."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fupareto import api, serial
from fupareto.federation import Request
from fupareto.federation.questions import Gradient, TrialLosses
from fupareto.methods import FedAvg, FUPareto, Method
from fupareto.methods.base import State, sample_size
from fupareto.methods.fupareto.expansion import baseline_losses
from fupareto.methods.fupareto.method import FUParetoState
from fupareto.methods.retrain import Retrain
from fupareto.tasks.losses import Loss
from presets import guard

from .. import blobs
from ..quadratics import QuadraticFederation, conflict, hinge, quadratic, story, walk
from ..spies import Spy, clients

CE = Loss("ce")
FORGET = ("u1", "u2")
MANY = tuple(f"r{k}" for k in range(12))


def state(retained: Sequence[str] = MANY, seed: int = 0, round_: int = 0) -> State:
    return State(torch.empty(0), FORGET, tuple(retained), seed=seed, round=round_)


def crowd(size: int = 12) -> QuadraticFederation:
    """The two forget clients of ``conflict`` among ``size`` who stay, each with another valley."""
    generator = torch.Generator().manual_seed(4)
    stay = {
        f"r{k}": quadratic(
            (0.4 * torch.randn(6, generator=generator)).tolist(), (3 * torch.rand(6, generator=generator)).tolist()
        )
        for k in range(size)
    }
    forget: dict[str, Any] = {i: conflict().clients[i] for i in FORGET}
    return QuadraticFederation(6, **forget, **stay)


def method(**options: Any) -> FUPareto:
    return guard(**{"rounds": 30, "recovery_rounds": 6, "lr": 0.3, "participation": 0.25, **options})


# Who is drawn ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.floats(1e-3, 1.0), st.integers(0, 2**32), st.integers(0, 400))
def test_the_size_of_a_sample(count: int, share: float, seed: int, round_: int) -> None:
    everybody = [f"c{k}" for k in range(count)]
    drawn = state(everybody, seed, round_).sampled(share)
    assert len(drawn) == sample_size(count, share) <= count
    assert abs(len(drawn) - max(share * count, 1)) <= 0.5
    assert [i for i in everybody if i in drawn] == list(drawn)
    if share == 1.0:
        assert drawn == tuple(everybody)


@pytest.mark.parametrize(("share", "size"), [(0.2, 3), (0.5, 8), (0.1, 2), (0.01, 1), (0.99, 15), (1.0, 15)])
def test_a_half_is_rounded_upwards(share: float, size: int) -> None:
    assert sample_size(15, share) == size


@given(st.permutations(MANY), st.integers(0, 1000))
def test_a_sample_does_not_depend_on_the_order_of_clients(order: list[str], round_: int) -> None:
    assert set(state(order, 3, round_).sampled(0.4)) == set(state(MANY, 3, round_).sampled(0.4))


def test_a_smaller_share_is_a_part_of_a_larger_one() -> None:
    for round_ in range(20):
        now = state(round_=round_)
        assert set(now.sampled(0.1)) < set(now.sampled(0.5)) < set(now.sampled(1.0))


def test_samples_differ_by_round_and_seed_and_come_again() -> None:
    def drawn(seed: int) -> list[tuple[str, ...]]:
        return [state(seed=seed, round_=r).sampled(0.25) for r in range(60)]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)
    assert len(set(drawn(0))) > 40
    counts = {i: sum(i in sample for sample in drawn(0)) for i in MANY}
    assert min(counts.values()) >= 5  # 15 expected: everybody has a turn
    assert max(counts.values()) <= 28


# Who is asked ------------------------------------------------------------------------------------------------------


def asked_by_round(method: Method, federation: Any, w0: torch.Tensor, request: Request | None) -> list[tuple[Any, Any]]:
    """Every state after a round, with the questions that led to it."""
    states, found = [method.init(federation, w0, request, 7)], []
    while not states[-1].done:
        federation.asked.clear()
        states.append(method.step(federation, states[-1]))
        found.append((states[-1], list(federation.asked)))
    return found


def test_fedavg_trains_with_the_sample_alone_and_names_it() -> None:
    federation = Spy(clients())
    for after, asked in asked_by_round(FedAvg(rounds=5, participation=0.5), federation, blobs.trained(), None):
        assert after.record["sampled"] == [i for i, _ in asked]
        assert len(asked) == 2
        assert after.record["missing"] == {}


def test_a_round_with_everybody_names_nobody() -> None:
    methods: tuple[Method, ...] = (FedAvg(rounds=1), guard(rounds=1, recovery_rounds=0))
    for other in methods:
        request = None if isinstance(other, FedAvg) else Request(blobs.FORGET)
        after = other.step(blobs.federation(), other.init(blobs.federation(), blobs.trained(), request))
        assert "sampled" not in after.record


def test_every_forget_client_and_a_share_of_the_others_are_asked() -> None:
    rounds = asked_by_round(method(), crowd(), torch.zeros(6), Request(FORGET))
    assert {a.phase for a, _ in rounds} == {"improve", "expand", "recover"}
    for k, (after, asked) in enumerate(rounds):
        sample = set(after.record["sampled"])
        recovering = after.phase == "recover"
        wanted = sample if recovering else {*FORGET, *sample}
        assert len(sample) == 3
        assert set(after.record["losses"]) == wanted
        guards = 4 if k + 1 < len(rounds) and rounds[k + 1][0].phase == "recover" and not recovering else 0
        questions = [i for i, q in asked if isinstance(q, Gradient)]
        assert questions[: len(questions) - guards] == list(after.record["losses"])
        assert {i for i, q in asked if isinstance(q, TrialLosses)} <= wanted
        assert after.record["missing"] == {}
    assert {i for after, _ in rounds for i in after.record["sampled"]} == set(MANY)


def test_an_expansion_keeps_the_sample_of_the_improvement_that_failed() -> None:
    rounds = [a for a, _ in asked_by_round(method(), crowd(), torch.zeros(6), Request(FORGET))]
    expansions = [k for k, after in enumerate(rounds) if after.phase == "expand"]
    assert expansions
    for k in expansions:
        assert rounds[k - 1].record["step"] is None
        assert rounds[k].record["sampled"] == rounds[k - 1].record["sampled"]
        assert all(abs(rounds[k].record["cosines"][r]) <= 1e-5 for r in rounds[k].record["sampled"])
    others = [k for k in range(1, len(rounds)) if k not in expansions]
    assert any(rounds[k].record["sampled"] != rounds[k - 1].record["sampled"] for k in others)


def test_a_sample_that_is_silent_is_not_waited_for() -> None:
    """Only one client of twelve is asked; where it is gone, an expansion must not wait for it for ever."""
    federation, alone = crowd(), method(participation=0.01, rounds=40, recovery_rounds=0)
    states = walk(alone, federation, torch.zeros(6), FORGET)
    at = next(k for k, s in enumerate(states) if s.expand_next)
    federation.absent = set(states[at].sample)
    stayed = alone.step(federation, states[at])
    assert stayed.phase == "expand"
    assert set(stayed.record["missing"]) == set(states[at].sample)
    assert not stayed.expand_next
    assert torch.equal(stayed.w, states[at].w)
    after = alone.step(federation, stayed)
    assert after.phase == "improve"
    assert after.sample != stayed.sample
    federation.absent = set(FORGET)  # these are asked in every round, so they can be waited for
    assert alone.step(federation, states[at]).expand_next


def test_with_everybody_nothing_depends_on_the_sampling() -> None:
    whole = walk(method(participation=1.0), crowd(), torch.zeros(6), FORGET)
    almost = walk(method(participation=0.97), crowd(), torch.zeros(6), FORGET)  # 11.64 of 12 clients
    assert all(serial.same(a, b) for a, b in zip(whole, almost, strict=True))
    assert guard().participation == 1.0


# What lasts --------------------------------------------------------------------------------------------------------


def test_the_baseline_is_what_losses_were_before_the_expansions() -> None:
    before = {"a": 0.5, "b": 1.0}
    assert baseline_losses({}, before, 7.0) == before  # a new beginning
    assert baseline_losses(before, {"a": 9.0, "b": 9.0}, 1.5) == before
    # losses rose by half since; c was not asked before, and is taken to have risen by half as well
    assert baseline_losses(before, {"a": 0.75, "c": 0.3}, 1.5) == {**before, "c": pytest.approx(0.2)}


@pytest.mark.parametrize("harm", [1.0, 0.25])
def test_expansions_of_changing_samples_do_not_add_up(harm: float) -> None:
    """Clients alike, so what is measured on a sample holds for all: the limit is that of all expansions together."""
    stay = {f"r{k}": quadratic([0.0, 0.05], [1.0, 400.0], floor=0.1) for k in range(8)}
    federation = QuadraticFederation(2, u1=hinge([-1.0, 0.0], -9.0), **stay)
    greedy = method(lr=0.2, s=0, expansion_harm=harm, participation=0.25, rounds=25, recovery_rounds=0)
    states = walk(greedy, federation, torch.zeros(2), ["u1"])
    assert "EiE" in story(states)
    calm: float | None = None
    for before, after in pairwise(states):
        if after.phase == "improve" and after.record["step"] is not None:
            calm = None
        elif after.phase == "expand":
            calm = federation.loss("r0", before.w, CE) if calm is None else calm
            assert federation.loss("r0", after.w, CE) <= (1 + harm) * calm + 1e-6


def test_a_resumed_state_asks_the_same_clients() -> None:
    """At every round, the state that went through bytes leads to the same end."""
    whole = walk(method(), crowd(), torch.zeros(6), FORGET)
    for k in range(0, len(whole) - 1, 5):
        back = serial.from_bytes({"FUParetoState": FUParetoState}, serial.to_bytes(whole[k]))
        federation, states = crowd(), [back]
        while not states[-1].done:
            states.append(method().step(federation, states[-1]))
        assert all(serial.same(a, b) for a, b in zip(states[1:], whole[k + 1 :], strict=True))


@pytest.mark.parametrize("after", [0, 3, 7])
def test_a_run_directory_that_was_cut_off_ends_the_same(after: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 6, "recovery_rounds": 3, "lr": 0.5, "participation": 0.5}

    class Cut(Exception):
        pass

    def cut(record: dict[str, Any]) -> None:
        if record["round"] > after:
            raise Cut

    def run(out: Path, **how: Any) -> api.Result:
        return api.unlearn(
            blobs.federation(), blobs.trained(), list(blobs.FORGET), guard(**options), out=out, seed=5, **how
        )

    finished = run(tmp_path / "whole")
    with pytest.raises(Cut):
        run(tmp_path / "cut", watch=cut)
    resumed = run(tmp_path / "cut", resume=True)
    for stage in ("unlearned", "recovered"):
        one, other = finished.outcome.model(stage), resumed.outcome.model(stage)
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)
    assert [r["sampled"] for r in finished.rounds] == [r["sampled"] for r in resumed.rounds]


# Other methods -----------------------------------------------------------------------------------------------------


def test_it_changes_what_fedavg_trains() -> None:
    def end(participation: float) -> list[float]:
        federation, training = blobs.federation(), FedAvg(rounds=3, participation=participation)
        now = training.init(federation, blobs.trained(), None)
        while not now.done:
            now = training.step(federation, now)
        return [float(x) for x in now.w]

    assert end(0.5) != end(1.0)
    assert end(0.97) == end(1.0)


def test_retraining_is_as_the_training_was() -> None:
    assert "participation" in Retrain.from_training
    federation = Spy(clients())
    retraining = Retrain(rounds=4, participation=0.5)
    for after, asked in asked_by_round(retraining, federation, blobs.trained(), Request(blobs.FORGET)):
        assert len(asked) == 1
        assert set(after.record["sampled"]) == {i for i, _ in asked} <= {"2", "3"}


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, float("nan"), True, "half"])
@pytest.mark.parametrize("kind", [FedAvg, FUPareto])
def test_senseless_shares_are_refused(kind: type[Any], value: Any) -> None:
    with pytest.raises(ValueError, match="participation"):
        kind(participation=value)
