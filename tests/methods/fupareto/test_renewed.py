"""FUPareto with renewal: its phases, the veto of the forget clients, and a rate that nobody has to set."""

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fupareto import api, serial
from fupareto.federation.questions import (
    Answer,
    Failure,
    Gradient,
    Losses,
    Question,
    Train,
    Trained,
    TrialLosses,
)
from fupareto.methods import FedAvg, FUPareto
from fupareto.methods.fupareto import veto
from fupareto.methods.fupareto.method import FUParetoState
from fupareto.methods.fupareto.rates import WIDE
from fupareto.methods.registry import find
from fupareto.methods.renew import Renew
from fupareto.tasks.losses import Loss
from presets import guard

from .. import blobs
from ..quadratics import conflict, story, walk
from ..spies import Spy, clients

TRAINING = FedAvg(rounds=20, lr=0.3, batch_size=4)
MBS, CE = Loss("mbs", delta=1e-3, form="separating"), Loss("ce")
STAY = ("2", "3")


def method(**options: Any) -> FUPareto:
    return FUPareto(**{"renewal": 0.2, "training": TRAINING, **options})


def finished(spy: Spy | None = None, seed: int = 0, **options: Any) -> list[Any]:
    return walk(method(**options), spy or Spy(clients()), blobs.trained(), blobs.FORGET, seed)


def losses(w: Tensor, ids: tuple[str, ...], loss: Loss) -> list[float]:
    return [clients().gradients(w, {i: loss}).losses.item() for i in ids]


def test_renewal_comes_first_and_is_that_of_renew() -> None:
    states, alone = finished(), walk(Renew(0.2, training=TRAINING), clients(), blobs.trained(), blobs.FORGET)
    assert [s.phase for s in states[1:5]] == ["renew"] * 4
    assert {s.phase for s in states[5:]} == {"improve"}
    for ours, theirs in zip(states[1:5], alone[1:], strict=True):
        assert torch.equal(ours.w, theirs.w)
    assert alone[-1].done
    assert not states[4].done
    assert len(states[4].velocity) == 0  # nothing is kept that is no longer needed


def test_improvement_takes_at_most_its_rounds() -> None:
    assert len(finished(rounds=3)) - 1 == 4 + 3
    assert len(finished(rounds=3, recovery_rounds=2)) - 1 == 4 + 3 + 2


def goal(question: Question) -> bool:
    """Return whether a client is asked for its losses at the renewed model and at w0, not about a trial step."""
    assert isinstance(question, TrialLosses)
    return torch.allclose(question.w - question.direction, blobs.trained(), atol=1e-5)


@pytest.mark.parametrize("relapse", [0.0, veto.RELAPSE, 0.3])
def test_every_step_lowers_the_retained_losses_and_keeps_the_forget_losses(
    relapse: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(veto, "RELAPSE", relapse)
    states = finished()
    renewed, known = (losses(w, blobs.FORGET, MBS) for w in (states[4].w, states[0].w))
    goals = [low + relapse * (high - low) for low, high in zip(renewed, known, strict=True)]
    assert all(low < high for low, high in zip(renewed, known, strict=True))
    steps = [(a, b) for a, b in pairwise(states[4:]) if b.record["step"] is not None]
    assert steps
    for before, after in steps:
        pairs = zip(losses(before.w, STAY, CE), losses(after.w, STAY, CE), strict=True)
        assert all(late < early for early, late in pairs)
        pairs = zip(losses(after.w, blobs.FORGET, MBS), goals, strict=True)
        assert all(now <= goal + 2e-6 for now, goal in pairs)


def test_without_a_little_relapse_forget_clients_end_improvement_early(monkeypatch: pytest.MonkeyPatch) -> None:
    short: dict[str, Any] = {"renewal": 0.25, "training": FedAvg(rounds=4, lr=0.5, batch_size=4)}
    usual = finished(**short)
    monkeypatch.setattr(veto, "RELAPSE", 0.0)
    strict = finished(**short)
    assert set(strict[-1].record["vetoes"]) & set(blobs.FORGET)
    assert story(usual[1:]).count("I") > story(strict[1:]).count("I")


def test_a_forget_client_can_stop_every_step() -> None:
    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        asked = isinstance(question, TrialLosses) and client == "1" and not goal(question)
        return Losses(tuple(x + 1.0 for x in answer.losses)) if asked and isinstance(answer, Losses) else answer

    states = finished(Spy(clients(), change=change))
    assert story(states[4:]) == "i"
    assert torch.equal(states[-1].w, states[4].w)


def test_forget_clients_are_asked_for_losses_only() -> None:
    spy = Spy(clients())
    finished(spy)
    assert spy.who(Gradient, Train) == set(STAY)
    assert spy.who(TrialLosses) == {*STAY, *blobs.FORGET}
    kinds = {type(q) for i, q in spy.asked if i in blobs.FORGET}
    assert kinds == {TrialLosses}


@pytest.mark.parametrize("known", [True, False])
def test_forget_clients_are_sent_the_model_whose_losses_they_are_asked_for(known: bool) -> None:
    """Once in a round: with the question for their goals, if they are asked for them."""
    spy = Spy(clients())
    renewed = finished()[4]
    goals = dict.fromkeys(blobs.FORGET, 1.0) if known else {}
    before = spy.traffic.down
    state = method().step(spy, dataclasses.replace(renewed, goals=goals))
    models = 2 * len(STAY) + (2 if known else 3) * len(blobs.FORGET)  # the model, the direction, and w0 for the goals
    steps = len(state.record["tried"]) * len((*STAY, *blobs.FORGET)) + (0 if known else 2) * len(blobs.FORGET)
    assert spy.traffic.down - before == 4 * (models * len(renewed.w) + steps)


def test_forget_clients_that_are_gone_end_improvement_at_once() -> None:
    spy = Spy(clients())
    spy.absent = set(blobs.FORGET)
    states = finished(spy)
    renewed = walk(Renew(0.2, training=TRAINING), clients(), blobs.trained(), blobs.FORGET)[-1]
    assert len(states) - 1 == 5
    assert torch.equal(states[-1].w, renewed.w)
    assert states[-1].record["missing"] == dict.fromkeys(blobs.FORGET, "absent")
    assert "no forget client answered" in states[-1].record["note"]
    assert not spy.who(Gradient)  # without a veto, nobody computes a gradient in vain


def test_a_forget_client_that_comes_back_has_a_veto_again() -> None:
    spy = Spy(clients())
    spy.absent = {"1"}
    states = finished(spy)[:6]
    assert set(states[-1].goals) == {"0"}
    assert states[-1].record["missing"] == {"1": "absent"}
    spy.absent = set()
    assert set(method().step(spy, states[-1]).goals) == {"0", "1"}


def test_an_outage_of_the_retained_clients_is_waited_out() -> None:
    spy = Spy(clients())
    before = finished(spy)[4]
    spy.absent = set(STAY)
    after = method().step(spy, before)
    assert torch.equal(after.w, before.w)
    assert not after.done
    spy.absent = set()
    assert method().step(spy, after).record["step"] is not None


@pytest.mark.parametrize("power", [-7, -4, 0])
def test_the_starting_rate_does_not_matter(power: int) -> None:
    """Rates that are powers of two apart search the same steps, so the models are the same bit for bit."""
    states, usual = finished(lr=2.0**power), finished(lr=2.0**-2)
    assert usual[5].record["step"] is not None
    assert [s.record["step"] for s in states[5:]] == [s.record["step"] for s in usual[5:]]
    assert torch.equal(states[-1].w, usual[-1].w)


def test_the_first_search_is_wide_and_later_ones_are_not() -> None:
    states = finished(lr=1.0)
    first, second = states[5].record, states[6].record
    assert first["tried"][0] == 2.0**WIDE
    assert second["lr"] == first["step"]
    assert second["tried"][0] == 8 * first["step"]


def never(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
    """No client accepts any step; gradients and goals are as they are."""
    trial = isinstance(question, TrialLosses) and not goal(question)
    return Losses(tuple(1e9 for _ in answer.losses)) if trial and isinstance(answer, Losses) else answer


def test_a_failed_wide_search_ends_the_stage() -> None:
    states = finished(Spy(clients(), change=never))
    assert story(states[4:]) == "i"
    assert len(states[-1].record["tried"]) == 2 * WIDE + 1


def test_after_a_failed_narrow_search_a_wide_one_follows() -> None:
    spy = Spy(clients())
    state = finished(spy)[5]
    assert state.measured
    spy.change = never
    narrow = method().step(spy, state)
    wide = method().step(spy, narrow)
    assert (len(narrow.record["tried"]), narrow.done) == (7, False)
    assert (len(wide.record["tried"]), wide.done) == (2 * WIDE + 1, True)
    assert torch.equal(wide.w, state.w)


def test_a_diverged_renewal_is_not_the_rate_of_improvement() -> None:
    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        if isinstance(question, Train) and isinstance(answer, Trained) and question.lr > 0.2:
            return dataclasses.replace(answer, w=answer.w * torch.nan)
        return answer

    states = finished(Spy(clients(), change=change), lr=0.5)
    assert [s.rate for s in states[1:4]] == pytest.approx([0.15] * 3)
    assert states[4].rate == 0.5


@pytest.mark.parametrize("cut", [2, 4, 5])
def test_it_resumes_from_what_was_saved(cut: int) -> None:
    states = finished(seed=5)
    state = serial.from_bytes({"FUParetoState": FUParetoState}, serial.to_bytes(states[cut]))
    for field in dataclasses.fields(state):
        saved, known = getattr(state, field.name), getattr(states[cut], field.name)
        assert torch.equal(saved, known) if isinstance(known, Tensor) else saved == known, field.name
    for wanted in states[cut + 1 :]:
        state = method().step(Spy(clients()), state)
        assert torch.equal(state.w, wanted.w)
        assert state.record == wanted.record
    assert state.done


@pytest.mark.parametrize("cut", [2, 4])
def test_a_run_that_was_cut_in_renewal_ends_the_same(cut: int, tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["round"] > cut:
            raise KeyboardInterrupt

    def run(out: str, **how: Any) -> api.Result:
        return api.unlearn(clients(), blobs.trained(), list(blobs.FORGET), method(), out=tmp_path / out, **how)

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("cut", watch=stop)
    resumed = run("cut", resume=True)
    one, other = whole.outcome.model("unlearned"), resumed.outcome.model("unlearned")
    assert one is not None
    assert other is not None
    assert torch.equal(one, other)
    assert [r["phase"] for r in resumed.rounds] == [r["phase"] for r in whole.rounds]
    stored = resumed.place.config["method"]
    assert find("fupareto", {k: v for k, v in stored.items() if k != "name"}) == method()  # config.toml says it all


# A rate that follows, without renewal ------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [-9, -5, 0])
def test_a_following_rate_needs_no_start(power: int) -> None:
    usual, other = (
        walk(guard(rates="follow", rounds=12, recovery_rounds=0, lr=2.0**k), conflict(), torch.zeros(6), ("u1", "u2"))
        for k in (-3, power)
    )
    assert story(usual)[0] == "I"
    assert torch.equal(usual[-1].w, other[-1].w)


def test_a_following_rate_is_the_largest_accepted_step_and_an_expansion_doubles_it() -> None:
    rates = guard(rates="follow", rounds=40, recovery_rounds=0, lr=0.1)
    states = walk(rates, conflict(), torch.zeros(6), ("u1", "u2"))
    told = story(states)
    assert "E" in told
    for before, after, letter in zip(states, states[1:], told, strict=False):
        step, tried = after.record["step"], after.record["tried"]
        assert after.record["lr"] == before.rate  # no decay
        if not before.measured and step is not None:
            assert after.rate == step
        elif letter == "I":
            assert after.rate == max(before.rate, step)
        elif letter == "E":
            assert tried[0] == before.rate
            assert after.rate == (2 * before.rate if step == tried[0] else before.rate)
        elif after.stalled % 3 == 0:
            assert after.rate == before.rate / 2
        else:
            assert after.rate == before.rate
    assert any(a.rate == 2 * b.rate for b, a, letter in zip(states, states[1:], told, strict=False) if letter == "E")


def test_a_following_rate_gives_up_after_eighteen_rounds_without_a_step() -> None:
    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        return Losses(tuple(1e9 for _ in answer.losses)) if isinstance(answer, Losses) else answer

    rates = guard(rates="follow", rounds=40, recovery_rounds=0, lr=0.1)
    states = walk(rates, Spy(clients(), change=change), blobs.trained(), blobs.FORGET)
    assert len(states) - 1 == 18
    assert torch.equal(states[-1].w, states[0].w)
