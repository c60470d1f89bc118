"""Relearning: hidden knowledge comes back sooner than knowledge that was never there."""

import torch

from federation import worlds
from federation.engines import FaultyFederation, only, silent
from fupareto import parameters
from fupareto.audit.relearning import goal, relearn
from fupareto.federation import SimulatedFederation
from fupareto.federation.collected import Local
from fupareto.federation.questions import Train
from fupareto.tasks.losses import Loss


def test_the_goal_is_nine_tenths_of_the_way() -> None:
    assert goal(1.0, 0.5) == 0.95
    assert goal(0.8, 0.0) == 0.8 * 0.9
    assert goal(0.5, 0.6) == 0.45  # a retrained model that knows more is no place to start from


def test_what_is_hidden_comes_back_sooner_than_what_was_never_known() -> None:
    federation = SimulatedFederation(worlds.plain(), worlds.clients())
    local = Local(lr=0.05, batch_size=20)
    known, unknown = parameters.read(worlds.plain()), federation.fresh(7)
    for _ in range(60):
        known = federation.train_mean(known, ["c1"], Loss("ce"), local).w  # type: ignore[assignment]
    hidden = known + 0.05 * torch.randn(known.shape, generator=torch.Generator().manual_seed(0))
    first = relearn(federation, hidden, ["c1"], "forget_acc", 0.95, local, 80)
    second = relearn(federation, unknown, ["c1"], "forget_acc", 0.95, local, 80)
    assert first["rounds"] is not None
    assert second["rounds"] is not None
    assert first["rounds"] < second["rounds"]
    assert len(second["curve"]) == second["rounds"] + 1
    assert second["curve"][-1] >= 0.95 > max(second["curve"][:-1])
    short = relearn(federation, unknown, ["c1"], "forget_acc", 0.95, local, second["rounds"] - 1)
    assert short == {"rounds": None, "curve": second["curve"][:-1]}


def test_a_measure_that_nobody_has_ends_at_once() -> None:
    federation = SimulatedFederation(worlds.plain(), worlds.clients())
    found = relearn(federation, federation.fresh(0), ["c1"], "asr", 0.9, Local(lr=0.1), 5)
    assert found == {"rounds": None, "curve": [None]}


def test_forget_clients_that_do_not_train_again_show_nothing() -> None:
    """They answer when they are measured, but not when they are to train: the curve ends where it began."""
    inner = SimulatedFederation(worlds.plain(), worlds.clients())
    federation = FaultyFederation(inner, {"c1": only(Train, silent)})
    found = relearn(federation, inner.fresh(7), ["c1"], "forget_acc", 1.1, Local(lr=0.1), 5)
    assert found["rounds"] is None
    assert len(found["curve"]) == 1
