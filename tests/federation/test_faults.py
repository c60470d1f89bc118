"""Clients that fail, answer nonsense or stay away: named in the answer, never hidden, and everybody else goes on."""

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fupareto.federation import Federation, Local, Request, SimulatedFederation
from fupareto.federation.collected import Trial
from fupareto.federation.questions import (
    Compared,
    Evaluated,
    Failure,
    Gradient,
    LossAndGradient,
    Losses,
    PseudoGradient,
    Question,
    Signalled,
    Train,
    Trained,
    TrialLosses,
)
from fupareto.methods import FedAvg, FUPareto
from fupareto.methods.fupareto.method import FUParetoState
from fupareto.tasks.losses import Loss
from presets import guard

from .engines import BytesFederation, Fault, FaultyFederation, Reply, always, only, silent
from .worlds import FORGET, clients, plain, small, start, world

CE = Loss("ce")
W = start()
N = len(W)
BAD = "c3"
OTHERS = ("c0", "c1", "c2", "c4", "c5")
IDS = ("c0", "c1", "c2", "c3", "c4", "c5")


def spoilt(value: float) -> Tensor:
    w = W.clone()
    w[7] = value
    return w


def with_fault(fault: Fault, *ids: str) -> FaultyFederation:
    return FaultyFederation(world(), dict.fromkeys(ids or (BAD,), fault))


class Fussy(nn.Module):
    """Refuses the samples of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small((8,), 3)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == len(clients()[BAD]["train"][1]):
            raise ZeroDivisionError("samples of the wrong kind")
        out: Tensor = self.inner(x)
        return out


@pytest.mark.parametrize("engine", ["simulated", "bytes"])
def test_a_client_whose_code_raises_is_named_with_its_words(engine: str) -> None:
    data = clients()
    federation: Federation = (
        SimulatedFederation(Fussy(), data, 2) if engine == "simulated" else BytesFederation(Fussy, data)
    )
    missing: dict[str, str] = {}
    rows = list(federation.losses(Trial(W, W, (0.2, 0.1)), dict.fromkeys(IDS, CE), missing))
    for answer in (
        federation.train(W, IDS, CE, Local(0.1)),
        federation.train_mean(W, IDS, CE, Local(0.1)),
        federation.gradients(W, dict.fromkeys(IDS, CE)),
        federation.gradients(W, dict.fromkeys(IDS, CE), pseudo=Local(0.1)),
    ):
        assert answer.missing == {BAD: "ZeroDivisionError: samples of the wrong kind"}
        assert answer.ids == OTHERS
    assert federation.evaluate(W, IDS, ("train",)).missing.keys() == missing.keys() == {BAD}
    assert [[i for i, loss in zip(IDS, row, strict=True) if math.isnan(loss)] for row in rows] == [[BAD], [BAD]]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Failure("no answer in time"), "no answer in time"),
        (Trained(spoilt(math.nan), 30), "not finite"),
        (Trained(spoilt(-math.inf), 30), "not finite"),
        (Trained(spoilt(-1e30), 30), r"as large as 1\.0e\+30"),  # finite, but its square is not
        (Trained(W[:-1], 30), rf"shape \({N - 1},\), not \({N},\)"),
        (Trained(W[None], 30), rf"shape \(1, {N}\), not \({N},\)"),
        (Trained(W, 0), "trained on 0 samples"),
        (Trained(W, -5), "size -5: Input should be greater than or equal to 0"),
        (LossAndGradient(1.0, W, 1), "answered with LossAndGradient, not Trained"),
    ],
)
def test_unusable_local_models(wrong: Reply, reason: str) -> None:
    federation, whole = with_fault(always(wrong)), world()
    found, wanted = federation.train(W, IDS, CE, Local(0.1)), whole.train(W, OTHERS, CE, Local(0.1))
    assert_reason(found.missing, reason)
    assert (found.ids, found.sizes) == (OTHERS, wanted.sizes)
    assert torch.equal(found.models, wanted.models)


def test_the_mean_is_of_those_who_answered() -> None:
    found = with_fault(silent).train_mean(W, IDS, CE, Local(0.1))
    wanted = world().train_mean(W, OTHERS, CE, Local(0.1))
    assert found.missing == {BAD: "no answer in time"}
    assert found.ids == OTHERS
    assert found.w is not None
    assert wanted.w is not None
    assert torch.equal(found.w, wanted.w)
    models = world().train(W, OTHERS, CE, Local(0.1))
    weights = torch.tensor(models.sizes) / sum(models.sizes)
    torch.testing.assert_close(found.w, weights @ models.models)


@pytest.mark.parametrize("pseudo", [None, Local(0.1)], ids=["full", "pseudo"])
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (LossAndGradient(1.0, spoilt(math.nan), 1), "not finite"),
        (LossAndGradient(1.0, spoilt(math.inf), 1), "not finite"),
        (LossAndGradient(math.nan, W, 1), "loss nan after 1 steps"),
        (LossAndGradient(math.inf, W, 1), "loss inf after 1 steps"),
        (LossAndGradient(1.0, W, 0), "loss 1.0 after 0 steps"),
        (LossAndGradient(1.0, W[:3], 1), rf"shape \(3,\), not \({N},\)"),
        (Losses((1.0,)), "answered with Losses, not LossAndGradient"),
    ],
)
def test_unusable_gradients(wrong: Reply, reason: str, pseudo: Local | None) -> None:
    federation, whole = with_fault(always(wrong)), world()
    found = federation.gradients(W, dict.fromkeys(IDS, CE), pseudo=pseudo)
    wanted = whole.gradients(W, dict.fromkeys(OTHERS, CE), pseudo=pseudo)
    assert_reason(found.missing, reason)
    assert found.ids == OTHERS
    assert torch.equal(found.gradients, wanted.gradients)
    np.testing.assert_array_equal(found.losses, wanted.losses)
    np.testing.assert_array_equal(found.steps, wanted.steps)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Losses((1.0, 2.0)), "answered 2 losses for 3 trial steps"),
        (Losses(()), "answered 0 losses for 3 trial steps"),
        (Trained(W, 30), "answered with Trained, not Losses"),
        (Failure("gone"), "gone"),
    ],
)
def test_unusable_trial_losses(wrong: Reply, reason: str) -> None:
    federation = FaultyFederation(BytesFederation(plain, clients()), {BAD: always(wrong)})
    missing: dict[str, str] = {}
    rows = np.array(list(federation.losses(Trial(W, W, (0.4, 0.2, 0.1)), dict.fromkeys(IDS, CE), missing)))
    assert_reason(missing, reason)
    assert rows.shape == (3, 6)
    assert np.isnan(rows[:, IDS.index(BAD)]).all()
    assert np.isfinite(np.delete(rows, IDS.index(BAD), axis=1)).all()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (
            Evaluated({"test": {"samples": 4, "right": 5, "loss": 0.1}}),
            "counted 5 correct predictions in 4 samples of 'test'",
        ),
        (Evaluated({"test": {"samples": 4, "right": -1, "loss": 0.1}}), "counted -1 correct"),
        (Evaluated({"test": {"samples": math.nan, "right": 0, "loss": 0.1}}), "in nan samples"),
        (Evaluated({"test": {"samples": -1, "right": -2, "loss": 0.1}}), "counted -2 correct"),
        (Losses((1.0,)), "answered with Losses, not Evaluated"),
    ],
)
def test_nonsense_counts(wrong: Reply, reason: str) -> None:
    found = with_fault(always(wrong)).evaluate(W, IDS, ("test",))
    assert_reason(found.missing, reason)
    assert tuple(found.counts) == OTHERS
    assert found.accuracy(BAD, "test") is None


def test_accuracy_of_what_was_not_counted_is_none() -> None:
    found = world().evaluate(W, IDS, ("test", "absent?"))
    accuracy = found.accuracy("c0", "test")
    assert accuracy is not None
    assert accuracy == found.counts["c0"]["test"]["right"] / 10
    assert found.accuracy("c0", "absent") is None
    assert found.accuracy("nobody", "test") is None


SEEN = (*torch.zeros(4, 2, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64))
MALFORMED: dict[str, Any] = {
    "size is null": Trained(W, None),  # type: ignore[arg-type]
    "size is NaN": Trained(W, math.nan),  # type: ignore[arg-type]
    "size is infinite": Trained(W, math.inf),  # type: ignore[arg-type]
    "complex model": Trained(W.to(torch.complex64), 30),
    "model beyond float32": Trained(W.double() + 1e300, 30),
    "loss is null": LossAndGradient(None, W, 1),  # type: ignore[arg-type]
    "gradient beyond float32": LossAndGradient(1.0, W.double() + 1e300, 1),
    "no losses": Losses(None),  # type: ignore[arg-type]
    "losses in words": Losses(("low",)),  # type: ignore[arg-type]
    "empty counts": Evaluated({"test": {}}),
    "counts in words": Evaluated({"test": {"samples": 3, "right": "all"}}),  # type: ignore[dict-item]
    "no counts": Evaluated(None),  # type: ignore[arg-type]
    "no signals": Signalled(None, *SEEN[1:]),  # type: ignore[arg-type]
    "signals for nothing": Signalled(*(t[:0] for t in SEEN)),
    "signals of another length": Signalled(SEEN[0][:1], *SEEN[1:]),
    "more outputs than ten": Signalled(SEEN[0], SEEN[1], SEEN[2], SEEN[3], torch.zeros(2, 11, dtype=torch.float64)),
    "signals of NaN": Signalled(SEEN[0] * math.nan, *SEEN[1:]),
    "a divergence of NaN": Compared(3, math.nan, 0.0, 0.0),
    "a divergence above 1": Compared(3, 2.0, 0.0, 0.0),
}


@pytest.mark.parametrize("wrong", MALFORMED.values(), ids=MALFORMED.keys())
def test_answers_of_the_right_type_with_the_wrong_insides_are_reported_too(wrong: Reply) -> None:
    """What comes over a network was written by somebody else."""
    federation = with_fault(always(wrong))
    missing: dict[str, str] = {}
    match wrong:
        case Trained():
            mean = federation.train_mean(W, IDS, CE, Local(0.1))
            assert mean.w is not None
            assert bool(torch.isfinite(mean.w).all())
            missing = mean.missing
        case LossAndGradient():
            missing = federation.gradients(W, dict.fromkeys(IDS, CE)).missing
        case Losses():
            list(federation.losses(Trial(W, W, (0.1,)), dict.fromkeys(IDS, CE), missing))
        case Evaluated():
            missing = federation.evaluate(W, IDS, ("test",)).missing
        case Signalled():
            seen, missing = federation.signals(W, IDS, ("test",))
            assert list(seen) == [i for i in IDS if i != BAD]
        case Compared():
            found, missing = federation.compare(W, W, IDS, ("test",))
            assert list(found) == [i for i in IDS if i != BAD]
    assert list(missing) == [BAD]


def assert_reason(missing: dict[str, str], reason: str) -> None:
    assert list(missing) == [BAD]
    assert re.search(reason, missing[BAD]), missing[BAD]


# Nobody answers ------------------------------------------------------------------------------------------------


def test_nobody_answers() -> None:
    federation = with_fault(silent, *IDS)
    everybody = dict.fromkeys(IDS, "no answer in time")
    mean = federation.train_mean(W, IDS, CE, Local(0.1))
    assert (mean.ids, mean.w, mean.missing) == ((), None, everybody)
    models = federation.train(W, IDS, CE, Local(0.1))
    assert (models.ids, models.models.shape, models.missing) == ((), (0, N), everybody)
    gradients = federation.gradients(W, dict.fromkeys(IDS, CE))
    assert (gradients.ids, gradients.gradients.shape, gradients.missing) == ((), (0, N), everybody)
    assert federation.evaluate(W, IDS, ("test",)).missing == everybody


def test_fedavg_keeps_the_model_when_nobody_answers() -> None:
    federation, method = with_fault(silent, *IDS), FedAvg(rounds=2)
    state = method.step(federation, method.init(federation, W, None))
    assert torch.equal(state.w, W)
    assert state.record["step"] is None
    assert set(state.record["missing"]) == set(IDS)
    assert method.step(federation, state).done


def test_fedavg_goes_on_without_a_client() -> None:
    federation, method = with_fault(silent), FedAvg(rounds=2)
    state = method.step(federation, method.init(federation, W, None))
    assert not torch.equal(state.w, W)
    assert state.record["step"] == 1.0
    assert state.record["missing"] == {BAD: "no answer in time"}


# FUPareto ------------------------------------------------------------------------------------------------------

RETAINED = ("c0", "c2", "c3", "c5")
METHOD = guard(rounds=50, lr=0.1, s=2)


def unlearn(federation: Federation, rounds: int = 1, method: FUPareto = METHOD, **changes: Any) -> FUParetoState:
    state = dataclasses.replace(method.init(federation, W, Request(FORGET)), **changes)
    for _ in range(rounds):
        state = method.step(federation, state)
    return state


@pytest.mark.parametrize("absent", ["c3", "c1"], ids=["retained", "one of two to forget"])
@pytest.mark.parametrize("expand_next", [False, True], ids=["improve", "expand"])
def test_fupareto_goes_on_without_a_client(absent: str, expand_next: bool) -> None:
    state = unlearn(with_fault(silent, absent), expand_next=expand_next)
    assert state.phase == ("expand" if expand_next else "improve")
    assert state.record["step"] is not None
    assert not torch.equal(state.w, W)
    assert state.record["missing"] == {absent: "no answer in time"}
    assert set(state.record["losses"]) == set(IDS) - {absent}
    assert "note" not in state.record


@pytest.mark.parametrize(
    ("absent", "side"), [(FORGET, "forget"), (RETAINED, "retained"), (IDS, "forget")], ids=["forget", "retained", "all"]
)
@pytest.mark.parametrize("expand_next", [False, True], ids=["improve", "expand"])
def test_fupareto_stays_when_a_side_is_missing(absent: tuple[str, ...], side: str, expand_next: bool) -> None:
    state = unlearn(with_fault(silent, *absent), expand_next=expand_next)
    assert torch.equal(state.w, W)
    assert state.round == 1
    assert state.record["step"] is None
    assert state.record["note"] == f"no {side} client answered; the model is unchanged"
    assert state.record["forgotten"] is False
    assert set(state.record["missing"]) == set(absent)


def test_recovery_stays_when_no_retained_client_answers() -> None:
    state = unlearn(with_fault(silent, *RETAINED), stage="recovered")
    assert torch.equal(state.w, W)
    assert state.phase == "recover"
    assert state.record["note"] == "no retained client answered; the model is unchanged"
    assert set(state.record["missing"]) == set(RETAINED)


def test_recovery_goes_on_without_a_client() -> None:
    state = unlearn(with_fault(silent), stage="recovered")
    assert not torch.equal(state.w, W)
    assert state.record["missing"] == {BAD: "no answer in time"}


def test_a_client_that_leaves_before_the_search_is_named_and_the_others_decide() -> None:
    state = unlearn(with_fault(only(TrialLosses, silent)))
    assert state.record["missing"] == {BAD: "no answer in time"}
    assert BAD in state.record["losses"]
    assert state.record["step"] is not None


@pytest.mark.parametrize("expand_next", [False, True], ids=["improve", "expand"])
def test_no_step_is_taken_when_nobody_answers_the_search(expand_next: bool) -> None:
    state = unlearn(with_fault(only(TrialLosses, silent), *IDS), expand_next=expand_next)
    assert torch.equal(state.w, W)
    assert state.record["step"] is None
    assert set(state.record["missing"]) == set(IDS)


def diverging(value: float, above: float) -> Fault:
    """Trial losses that are ``value`` for every step above a bound."""

    def fault(question: Question, reply: Reply) -> Reply:
        if not isinstance(question, TrialLosses):
            return reply
        assert isinstance(reply, Losses)
        pairs = zip(question.steps, reply.losses, strict=True)
        return Losses(tuple(value if step > above else loss for step, loss in pairs))

    return fault


@pytest.mark.parametrize("engine", ["simulated", "bytes"])
@pytest.mark.parametrize("who", [("c3",), ("c1",)], ids=["retained", "forget"])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_diverged_trial_loss_rejects_the_step(value: float, who: tuple[str, ...], engine: str) -> None:
    inner = world() if engine == "simulated" else BytesFederation(plain, clients())
    usual = unlearn(world()).record
    assert usual["step"] > 0.1
    state = unlearn(FaultyFederation(inner, dict.fromkeys(who, diverging(value, above=0.15))))
    assert state.record["missing"] == {}
    assert state.record["tried"] == [0.4, 0.2, 0.1]
    assert state.record["step"] == 0.1


def test_a_diverged_trial_loss_is_infinite() -> None:
    for value in (math.inf, -math.inf, math.nan):
        federation = with_fault(diverging(value, above=0.0))
        row = next(iter(federation.losses(Trial(W, W, (0.1,)), dict.fromkeys(IDS, CE), {})))
        assert row[IDS.index(BAD)] == math.inf


def test_several_diverged_trial_losses_reject_the_step_quietly() -> None:
    state = unlearn(with_fault(diverging(math.inf, above=0.15), "c0", "c3"))
    assert state.record["step"] == 0.1


def test_a_trial_loss_of_minus_infinity_is_no_improvement() -> None:
    """A model that has blown up must not pass for a forgotten one."""
    for expand_next in (False, True):
        state = unlearn(with_fault(diverging(-math.inf, above=0.0), "c1"), expand_next=expand_next)
        assert state.record["step"] is None


def content(question: Question, reply: Reply) -> Reply:
    """A forget client that has nothing left to forget."""
    return LossAndGradient(0.0, torch.zeros(N), 1) if isinstance(question, Gradient | PseudoGradient) else reply


def test_forgotten_when_every_forget_client_has_no_gradient_left() -> None:
    assert unlearn(FaultyFederation(world(), {"c1": content, "c4": content})).record["forgotten"] is True
    assert unlearn(FaultyFederation(world(), {"c1": content})).record["forgotten"] is False


def test_a_missing_forget_client_is_never_counted_as_forgotten() -> None:
    state = unlearn(FaultyFederation(world(), {"c1": content, "c4": silent}))
    assert state.record["forgotten"] is False
    assert state.stage == "unlearned"


def test_failures_cost_no_traffic_up() -> None:
    federation = with_fault(only(Train, silent))
    federation.train_mean(W, IDS, CE, Local(0.1))
    assert (federation.traffic.down, federation.traffic.up) == (6 * 4 * N, 5 * 4 * N)
