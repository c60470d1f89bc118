"""Relearning and dormancy: what is hidden comes back, what was never known does not."""

import pytest
import torch

from federation import worlds
from fupareto import FedAvg, parameters
from fupareto.audit.dormancy import dormancy
from fupareto.audit.further import Further
from fupareto.audit.relearning import ROUNDS, SHARE, relearning
from fupareto.federation import SimulatedFederation
from fupareto.federation.collected import Local
from fupareto.tasks.losses import Loss

TRAINING = FedAvg(rounds=60, lr=0.05, batch_size=20)
SIDES = ("c1",), ("c0", "c2", "c3")


def federation() -> SimulatedFederation:
    return SimulatedFederation(worlds.plain(), worlds.clients())


def test_what_is_hidden_comes_back_sooner_than_what_was_never_known() -> None:
    everybody = federation()
    known = parameters.read(worlds.plain())
    for _ in range(60):
        known = everybody.train_mean(known, ["c1"], Loss("ce"), Local(lr=0.05, batch_size=20)).w  # type: ignore[assignment]
    hidden = known + 0.1 * torch.randn(known.shape, generator=torch.Generator().manual_seed(0))
    models = {"initial": known, "unlearned": hidden, "retrained": everybody.fresh(7)}
    found = relearning(Further(everybody, SIDES, "forget_acc", TRAINING), models)
    mean = {stage: own["mean"] for stage, own in found["models"].items()}
    assert mean["initial"] >= mean["unlearned"] > mean["retrained"]
    assert found["lr"] == SHARE * TRAINING.lr
    for own in found["models"].values():
        assert len(own["curve"]) == ROUNDS + 1
        assert own["mean"] == pytest.approx(sum(own["curve"][1:]) / ROUNDS)


def test_a_measure_that_nobody_has_is_not_measured() -> None:
    found = relearning(Further(federation(), SIDES, "asr", TRAINING), {"initial": federation().fresh(0)})
    assert found["models"]["initial"] == {"mean": None, "curve": [None] * (ROUNDS + 1)}


def test_dormancy_trains_as_the_training_did() -> None:
    """From a fresh model, with the same seeds, it is FedAvg among the retained clients."""
    everybody = federation()
    further = Further(everybody, SIDES, "forget_acc", TRAINING, seed=3)
    start = everybody.fresh(1)
    found = dormancy(further, {"retrained": start}, 5)
    own = found["models"]["retrained"]
    assert (found["rounds"], found["lr"], len(own["curve"])) == (5, TRAINING.lr, 6)
    assert own["worst"] == max(own["curve"][1:]) == own["curve"][own["worst_round"]]
    assert own["clients"] == {"c1": {"value": own["worst"], "samples": 24}}
    again = dormancy(further, {"retrained": start}, 5)
    assert again == found
    rates = []
    for _, w in zip(range(3), TRAINING.onward(everybody, start, SIDES[1], 0), strict=False):
        rates.append(float((w - start).norm()))
    assert 0 < rates[0] < rates[2]
