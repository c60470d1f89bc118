"""Relearning and dormancy: what is hidden comes back, what was never known does not."""

import pytest
import torch

from federation import worlds
from federation.engines import FaultyFederation, only, silent
from fupareto import FedAvg, parameters
from fupareto.audit.dormancy import dormancy
from fupareto.audit.further import Further
from fupareto.audit.relearning import ROUNDS, SHARE, relearning
from fupareto.federation import SimulatedFederation
from fupareto.federation.collected import Local
from fupareto.federation.questions import Train
from fupareto.randomness import derive
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
    assert found["models"]["initial"] == {"mean": None, "curve": [None] * (ROUNDS + 1), "missing": []}


def test_dormancy_trains_as_the_training_did() -> None:
    """From a fresh model, with the same seeds, it is FedAvg among the retained clients."""
    everybody = federation()
    further = Further(everybody, SIDES, "forget_acc", TRAINING, seed=3)
    start = everybody.fresh(1)
    found = dormancy(further, {"retrained": start}, 5)
    own = found["models"]["retrained"]
    assert (found["rounds"], found["lr"], len(own["curve"])) == (5, TRAINING.lr, 6)
    assert own["worst"] == max(own["curve"][1:]) == own["curve"][own["worst_round"]]
    assert own["clients"] == {"c1": {"value": own["worst"], "samples": 24, "round": own["worst_round"]}}
    assert (own["idle"], own["missing"]) == (0, [])
    alone = SimulatedFederation(worlds.plain(), {i: everybody.clients[i] for i in SIDES[1]})
    state, expected = TRAINING.init(alone, start, None, seed=derive(3, "dormancy")), [further.known(start)[0]]
    for _ in range(5):
        state = TRAINING.step(alone, state)
        expected.append(further.known(state.w)[0])
    assert own["curve"] == expected
    assert len(set(expected)) > 2  # the model changes


def test_every_client_has_its_own_worst_round(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([(0.0, 0.0), (0.07, 0.0), (0.04, 0.04), (0.01, 0.05)])  # as it is, and after three rounds

    def known(self: Further, w: torch.Tensor) -> tuple[float, dict[str, dict[str, float]]]:
        first, second = next(shares)
        return (first + second) / 2, {"c1": {"value": first, "samples": 100}, "c2": {"value": second, "samples": 100}}

    monkeypatch.setattr(Further, "known", known)
    further = Further(federation(), (("c1", "c2"), ("c0", "c3")), "asr", TRAINING)
    own = dormancy(further, {"unlearned": federation().fresh(1)}, 3)["models"]["unlearned"]
    assert (own["worst"], own["worst_round"]) == (0.04, 2)
    assert own["clients"] == {
        "c1": {"value": 0.07, "samples": 100, "round": 1},
        "c2": {"value": 0.05, "samples": 100, "round": 3},
    }


def test_rounds_in_which_nobody_trains_are_not_measured() -> None:
    start = federation().fresh(1)
    idle = FaultyFederation(federation(), {i: only(Train, silent) for i in ("c0", "c2", "c3")})
    own = dormancy(Further(idle, SIDES, "forget_acc", TRAINING), {"unlearned": start}, 3)["models"]["unlearned"]
    assert (own["curve"][1:], own["worst"], own["idle"]) == ([None] * 3, None, 3)
    one = FaultyFederation(federation(), {"c0": only(Train, silent)})
    own = dormancy(Further(one, SIDES, "forget_acc", TRAINING), {"unlearned": start}, 3)["models"]["unlearned"]
    assert None not in own["curve"]
    assert own["idle"] == 0


def test_relearning_says_who_did_not_train() -> None:
    start = federation().fresh(1)
    nobody = FaultyFederation(federation(), {"c1": only(Train, silent)})
    own = relearning(Further(nobody, SIDES, "forget_acc", TRAINING), {"unlearned": start})["models"]["unlearned"]
    assert (own["mean"], own["missing"]) == (None, ["c1"])
    both = Further(nobody, (("c1", "c2"), ("c0", "c3")), "forget_acc", TRAINING)
    own = relearning(both, {"unlearned": start})["models"]["unlearned"]
    assert own["mean"] is not None
    assert own["missing"] == ["c1"]
