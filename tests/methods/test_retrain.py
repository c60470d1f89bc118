"""Retraining is FedAvg from a fresh model in a world where those who left have never been."""

import pytest
import torch

from fupareto import experiment
from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.federation import SimulatedFederation
from fupareto.federation.request import Request
from fupareto.methods import FedAvg
from fupareto.methods.retrain import Retrain

from . import blobs
from .quadratics import QuadraticFederation, linear, vector, walk
from .spies import Spy, clients

METHOD = Retrain(rounds=4, lr=0.3, decay=0.9, epochs=2, batch_size=5)


def test_it_is_training_without_those_who_left() -> None:
    states = walk(METHOD, clients(), blobs.trained(), blobs.FORGET, seed=3)
    held = clients().clients
    alone = SimulatedFederation(blobs.model(), {i: held[i] for i in ("2", "3")}, workers=1)
    training = FedAvg(rounds=4, lr=0.3, decay=0.9, epochs=2, batch_size=5)
    state = training.init(alone, states[0].w, None, seed=3)
    for wanted in states[1:]:
        state = training.step(alone, state)
        assert torch.equal(state.w, wanted.w)
    assert state.done
    assert states[-1].done


def test_it_starts_from_a_fresh_model_and_not_from_w0() -> None:
    federation = clients()
    start = METHOD.init(federation, blobs.trained(), Request(("0",)), seed=3).w
    assert torch.equal(METHOD.init(federation, 0 * blobs.trained(), Request(("0",)), seed=3).w, start)
    assert not torch.equal(METHOD.init(federation, blobs.trained(), Request(("0",)), seed=4).w, start)
    assert not torch.equal(start, blobs.trained())
    assert float(start.abs().max()) < 1.0  # young


def test_those_who_left_are_never_asked() -> None:
    spy = Spy(clients())
    states = walk(METHOD, spy, blobs.trained(), blobs.FORGET)
    assert spy.who() == {"2", "3"}
    assert {s.stage for s in states} == {"unlearned"}
    assert METHOD.budget == 4


def test_nobody_answers() -> None:
    spy = Spy(clients())
    spy.absent = set(spy.ids)
    start = METHOD.init(spy, blobs.trained(), Request(("0",)))
    after = METHOD.step(spy, start)
    assert torch.equal(after.w, start.w)
    assert (after.record["step"], set(after.record["missing"])) == (None, {"1", "2", "3"})


def test_an_engine_that_cannot_make_a_fresh_model_says_so() -> None:
    federation = QuadraticFederation(1, a=linear([1.0]), b=linear([1.0]))
    with pytest.raises(UserError, match="QuadraticFederation cannot make a newly initialised model"):
        METHOD.init(federation, vector(0.0), Request(("a",)))


def test_it_needs_a_request() -> None:
    with pytest.raises(ValueError, match="Retrain needs a request"):
        METHOD.init(clients(), blobs.trained(), None)


def test_its_settings_are_the_trainings_unless_said_otherwise() -> None:
    file = Experiment.model_validate({"train": {"lr": 0.7, "decay": 0.98, "epochs": 3, "batch_size": 11, "rounds": 9}})
    assert experiment.forgetter(file, "retrain", {}) == Retrain(lr=0.7, decay=0.98, epochs=3, batch_size=11)
    chosen = experiment.forgetter(file, "retrain", {"lr": 0.1, "rounds": 5})
    assert chosen == Retrain(rounds=5, lr=0.1, decay=0.98, epochs=3, batch_size=11)
