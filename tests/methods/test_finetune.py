"""Fine-tuning is FedAvg from w0 with the retained clients, and nothing else."""

import pytest
import torch

from fupareto import experiment
from fupareto.config import Experiment
from fupareto.federation import SimulatedFederation
from fupareto.methods import FedAvg
from fupareto.methods.finetune import FineTune

from . import blobs
from .quadratics import walk
from .spies import Spy, clients

METHOD = FineTune(rounds=4, lr=0.3, decay=0.9, epochs=2, batch_size=5)


def test_it_is_training_from_w0_in_a_federation_of_the_retained_clients() -> None:
    spy = Spy(clients())
    states = walk(METHOD, spy, blobs.trained(), blobs.FORGET, seed=3)
    assert torch.equal(states[0].w, blobs.trained())
    alone = SimulatedFederation(blobs.model(), {i: clients().clients[i] for i in ("2", "3")}, workers=1)
    training = FedAvg(rounds=4, lr=0.3, decay=0.9, epochs=2, batch_size=5)
    state = training.init(alone, blobs.trained(), None, seed=3)
    for wanted in states[1:]:
        state = training.step(alone, state)
        assert torch.equal(state.w, wanted.w)
    assert spy.who() == {"2", "3"}
    assert {s.stage for s in states} == {"unlearned"}


def test_it_needs_a_request() -> None:
    with pytest.raises(ValueError, match="FineTune needs a request"):
        METHOD.init(clients(), blobs.trained(), None)


def test_its_settings_are_the_trainings_and_its_rounds_are_not() -> None:
    file = Experiment.model_validate({"train": {"lr": 0.7, "decay": 0.98, "epochs": 3, "batch_size": 11, "rounds": 9}})
    assert experiment.forgetter(file, "finetune", {}) == FineTune(lr=0.7, decay=0.98, epochs=3, batch_size=11)
