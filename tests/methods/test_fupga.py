"""FUPGA: the reference model and the ball by hand, the ascent against torch's SGD, and when a client stops."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fupareto import parameters
from fupareto.errors import NotApplicable, UserError
from fupareto.federation import SimulatedFederation
from fupareto.federation.history import History, Plan
from fupareto.federation.questions import Answer, Evaluate, Evaluated, Failure, Question, Train, TrainWithin
from fupareto.federation.questions.fupga import into_ball
from fupareto.federation.request import Request
from fupareto.methods.fupga import FUPGA, FUPGAState, reference_model
from fupareto.tasks import Numbers
from fupareto.tasks.losses import Loss

from .quadratics import vector
from .spies import Spy, line, lines, points

SIZES = {"a": 6, "u": 3, "b": 12, "v": 9}
LAST = {  # every client's last local model
    "a": torch.full((9,), 1.0),
    "u": torch.full((9,), -2.0),
    "b": torch.linspace(0.0, 1.0, 9),
    "v": torch.linspace(3.0, -1.0, 9),
}


def kept(path: Path, **last: tuple[Tensor, int]) -> History:
    history = History.create(path, Plan(("fupga",), tuple(SIZES), rounds=4), 0)
    for i, (w, size) in last.items():
        history.keep_last(i, w, size)
    history.keep_clients(None, tuple(last))
    return history


def everybody(path: Path) -> History:
    return kept(path, **{i: (LAST[i], n) for i, n in SIZES.items()})


def mean(*ids: str) -> Tensor:
    """Return the mean of last models, weighted by samples."""
    return sum((SIZES[i] * LAST[i] for i in ids), torch.zeros(9)) / sum(SIZES[i] for i in ids)


# The reference model and the ball ------------------------------------------------------------------------------


@pytest.mark.parametrize("forget", [("u",), ("b",), ("u", "v"), ("u", "b", "v")])
def test_the_reference_is_the_mean_of_the_others_last_models(tmp_path: Path, forget: tuple[str, ...]) -> None:
    found = reference_model(mean(*SIZES), everybody(tmp_path), forget)
    torch.testing.assert_close(found, mean(*(i for i in SIZES if i not in forget)))
    assert found.dtype == torch.float32


def test_the_reference_by_hand(tmp_path: Path) -> None:
    """Two clients of 1 and 3 samples: (w0 - w_u / 4) / (3 / 4)."""
    history = kept(tmp_path, a=(vector(0.0), 3), u=(vector(8.0), 1))
    assert reference_model(vector(5.0), history, ("u",)).tolist() == [4.0]  # (5 - 2) / 0.75


def test_whoever_was_away_in_the_last_round_has_no_share(tmp_path: Path) -> None:
    here = [i for i in SIZES if i != "b"]
    history = kept(tmp_path, **{i: (LAST[i], SIZES[i]) for i in here})
    torch.testing.assert_close(reference_model(mean(*here), history, ("u",)), mean("a", "v"))
    with pytest.raises(UserError, match="client b took no part in the last round"):
        reference_model(mean(*here), history, ("u", "b"))


class Drawn(Spy):
    """Fresh models at known distances from ``center``."""

    center = torch.zeros(9)
    seeds: tuple[int, ...] = ()

    def fresh(self, seed: int) -> Tensor:
        self.seeds = (*self.seeds, seed)
        w = self.center.clone()
        w[len(self.seeds) % 9] += len(self.seeds)  # distances 1 to 10
        return w


def started(path: Path, forget: tuple[str, ...] = ("u",), **options: Any) -> tuple[FUPGA, Drawn, FUPGAState]:
    method, spy = FUPGA(**{"rounds": 3, "recovery_rounds": 1, "batch_size": 4, **options}), Drawn(lines(**SIZES))
    spy.history = everybody(path)
    spy.center = mean(*(i for i in SIZES if i not in forget))
    return method, spy, method.init(spy, mean(*SIZES), Request(forget), seed=2)


def test_the_radius_is_the_root_of_a_third_of_the_mean_squared_distance_to_ten_fresh_models(tmp_path: Path) -> None:
    _, spy, state = started(tmp_path)
    assert len(set(spy.seeds)) == 10
    assert state.radius == pytest.approx(math.sqrt(sum(k * k for k in range(1, 11)) / 10 / 3), rel=1e-5)
    torch.testing.assert_close(state.center, spy.center)
    assert torch.equal(state.w, state.center)
    assert not state.w0.numel()
    assert not spy.asked


@given(st.lists(st.floats(-9, 9), min_size=3, max_size=3), st.floats(0.1, 20))
def test_the_nearest_point_of_the_ball(values: list[float], radius: float) -> None:
    w, center = vector(*values), vector(0.5, -0.5, 0.0)
    found, distance = into_ball(w, center, radius), float((w - center).norm())
    if distance <= radius:
        assert found is w
    else:
        assert float((found - center).norm()) == pytest.approx(radius, rel=1e-5)
        torch.testing.assert_close((found - center) / radius, (w - center) / distance, atol=1e-5, rtol=1e-5)


# The ascent ----------------------------------------------------------------------------------------------------


def question(radius: float, **changes: Any) -> TrainWithin:
    w = parameters.read(line())
    options = {"loss": Loss("ascent"), "lr": 0.3, "momentum": 0.9, "clip": 5.0, "epochs": 2, "batch_size": 4, "seed": 0}
    return TrainWithin(w, w + 0.01, radius, **{**options, **changes})


def test_every_local_step_stays_within_the_ball() -> None:
    module, seen = line(), []
    asked = question(radius=0.2)
    module.register_forward_pre_hook(lambda m, _: seen.append(float((parameters.read(m) - asked.center).norm())))
    end = asked.answer(module, {"train": points(0, 20)}, "u").w
    assert len(seen) == 10  # two epochs of five batches
    assert max(*seen, float((end - asked.center).norm())) <= 0.2 * (1 + 1e-5)
    assert sum(distance > 0.19 for distance in seen) >= 5  # it was held back, not short of breath


@pytest.mark.parametrize("clip", [0.05, 5.0])
def test_in_a_wide_ball_it_is_torchs_sgd_with_momentum_and_clipping(clip: float) -> None:
    x, y = points(0, 10)
    module, asked = line(), question(radius=1e9, clip=clip)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    for _ in range(2):
        for k in (0, 4, 8):
            optimiser.zero_grad()
            torch.autograd.backward(-torch.nn.functional.cross_entropy(module(x[k : k + 4]), y[k : k + 4]))
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimiser.step()
    found = asked.answer(line(), {"train": (x, y)}, "u").w
    torch.testing.assert_close(found, parameters.read(module), atol=1e-5, rtol=1e-4)
    before, after = (loss_of(w, x, y) for w in (asked.w, found))
    assert after > before


@torch.no_grad()
def loss_of(w: Tensor, x: Tensor, y: Tensor) -> float:
    module = line()
    parameters.write(module, w)
    return float(torch.nn.functional.cross_entropy(module(x), y))


def test_a_round_is_the_plain_mean_of_the_leaving_clients_ascents(tmp_path: Path) -> None:
    method, spy, state = started(tmp_path, ("u", "v"), lr=0.05)
    after = method.step(spy, state)
    asked = [(i, q) for i, q in spy.asked if isinstance(q, TrainWithin)]
    assert [i for i, _ in asked] == ["u", "v"]
    assert spy.who() == {"u", "v"}
    data = lines(**SIZES).clients
    ascents = [q.answer(line(), data[i], i).w for i, q in asked]
    torch.testing.assert_close(after.w, (ascents[0] + ascents[1]) / 2)
    for _, q in asked:
        assert (q.radius, q.lr, q.momentum, q.clip, q.loss) == (state.radius, 0.05, 0.9, 5.0, Loss("ascent"))
        assert torch.equal(q.center, state.center)


# When to stop --------------------------------------------------------------------------------------------------


def seeing(right: dict[str, int]) -> Callable[[str, Question, Answer | Failure], Answer | Failure]:
    """Every client counts so many right answers of thirty."""

    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        if isinstance(question, Evaluate):
            assert question.splits == ("train",)
            return Evaluated({"train": {"samples": 30, "right": right[client], "loss": 0.0}})
        return answer

    return change


def test_a_client_stops_at_the_accuracy_of_a_random_guess(tmp_path: Path) -> None:
    """Three classes: 10 of 30 is a guess, 11 is not. Who has stopped may have to begin again."""
    method, spy, state = started(tmp_path, ("u", "v"), rounds=5)
    spy.change = seeing({"u": 10, "v": 11})
    state = method.step(spy, state)
    assert (state.active, state.stage) == (("v",), "unlearned")
    spy.asked.clear()
    spy.change = seeing({"u": 12, "v": 11})
    state = method.step(spy, state)
    assert spy.who(TrainWithin) == {"v"}
    assert spy.who(Evaluate) == {"u", "v"}
    assert state.active == ("u", "v")
    spy.change = seeing({"u": 10, "v": 0})
    state = method.step(spy, state)
    assert (state.stage, state.started, state.round) == ("recovered", 3, 3)
    spy.asked.clear()
    state = method.step(spy, state)
    assert spy.who() == spy.who(Train) == {"a", "b"}
    assert state.done


def test_a_client_that_could_not_be_measured_goes_on(tmp_path: Path) -> None:
    method, spy, state = started(tmp_path, ("u", "v"))

    def change(client: str, question: Question, answer: Answer | Failure) -> Answer | Failure:
        gone = client == "v" and isinstance(question, Evaluate)
        return Failure("asleep") if gone else seeing({"u": 0, "v": 0})(client, question, answer)

    spy.change = change
    state = method.step(spy, state)
    assert state.active == ("v",)
    assert state.record["missing"] == {"v": "asleep"}


def test_the_ascent_forgets_on_real_points(tmp_path: Path) -> None:
    method, spy, state = started(tmp_path, ("u",), rounds=30, lr=0.3)
    x, y = lines(**SIZES).clients["u"]["train"]
    start = loss_of(state.w, x, y)
    while state.stage == "unlearned":
        state = method.step(spy, state)
        assert float((state.w - state.center).norm()) <= state.radius * (1 + 1e-5)
    module = line()
    parameters.write(module, state.w)
    assert float((module(x).argmax(1) == y).double().mean()) <= 1 / 3
    assert loss_of(state.w, x, y) > start


def test_a_task_without_a_random_guess_is_refused(tmp_path: Path) -> None:
    """With one output, the share of right guesses would be 1 / 1, and every client would stop at once."""
    held = {i: {"train": (torch.randn(6, 2), torch.randn(6, 1))} for i in SIZES}
    federation = SimulatedFederation(torch.nn.Linear(2, 1), held, workers=1, task=Numbers(tolerance=0.5))
    with pytest.raises(NotApplicable, match="FUPGA needs the task classes, not numbers"):
        FUPGA().init(Spy(federation, everybody(tmp_path)), torch.zeros(3), Request(("u",)))


@pytest.mark.parametrize("options", [{"momentum": 1.0}, {"momentum": -0.1}, {"clip": 0.0}])
def test_senseless_hyper_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        FUPGA(**options)  # type: ignore[arg-type]
