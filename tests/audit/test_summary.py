"""The audit's numbers, by hand: forgetting, utility, cost, which model to keep, and what may be said of it."""

from typing import Any

import numpy as np
import pytest
import torch

from federation.engines import FaultyFederation, always
from fupareto.audit import summary
from fupareto.audit.forgetting import forgetting
from fupareto.audit.measure import measure
from fupareto.audit.summary import conclude
from fupareto.audit.utility import utility
from fupareto.federation.collected import Evaluation
from fupareto.federation.questions import Failure
from fupareto.federation.simulated import SimulatedFederation

Counts = dict[str, dict[str, float]]


def counts(**right_of: tuple[int, int]) -> Counts:
    return {split: {"samples": n, "right": right, "loss": 0.5} for split, (right, n) in right_of.items()}


def test_forgetting_by_hand() -> None:
    evaluation = Evaluation(
        {
            "a": counts(train=(9, 10), clean=(7, 10), trigger=(1, 10)),
            "b": counts(train=(5, 5), clean=(1, 5), trigger=(3, 5)),
            "other": counts(train=(1, 1), trigger=(1, 1)),
        }
    )
    found = forgetting(evaluation, ["a", "b"])
    assert found["asr"] == pytest.approx((0.1 + 0.6) / 2)  # by client, not by sample
    assert found["asr_max"] == 0.6
    assert found["forget_acc"] == pytest.approx((0.7 + 0.2) / 2)  # on clean samples, not on triggered ones
    assert found["clients"] == {
        "a": {"side": "forget", "asr": 0.1, "accuracy": 0.7, "samples": 10, "asr_samples": 10},
        "b": {"side": "forget", "asr": 0.6, "accuracy": 0.2, "samples": 5, "asr_samples": 5},
    }


def test_forgetting_without_a_trigger() -> None:
    found = forgetting(Evaluation({"a": counts(train=(3, 4))}), ["a"])
    assert (found["asr"], found["asr_max"], found["forget_acc"]) == (None, None, 0.75)
    assert found["clients"]["a"] == {
        "side": "forget",
        "asr": None,
        "accuracy": 0.75,
        "samples": 4,
        "asr_samples": 0,
    }


def test_who_did_not_answer_is_not_counted() -> None:
    evaluation = Evaluation({"a": counts(train=(8, 10), trigger=(8, 10))}, {"b": "timed out"})
    found = forgetting(evaluation, ["a", "b"])
    assert (found["asr"], found["asr_max"], found["forget_acc"]) == (0.8, 0.8, 0.8)  # not 0.4: b is not a zero
    assert set(found["clients"]) == {"a"}
    nobody = forgetting(Evaluation({}, {"a": "gone", "b": "gone"}), ["a", "b"])
    assert nobody == {"asr": None, "asr_max": None, "forget_acc": None, "clients": {}}
    empty = forgetting(Evaluation({"a": counts(train=(0, 0), trigger=(0, 0))}), ["a"])
    assert (empty["asr"], empty["forget_acc"]) == (None, None)


def test_utility_by_hand() -> None:
    evaluation = Evaluation({"a": counts(test=(9, 10)), "b": counts(test=(1, 2)), "c": counts(test=(4, 5))})
    found = utility(evaluation, ["a", "b", "c"])
    assert found["r_acc"] == pytest.approx((0.9 + 0.5 + 0.8) / 3)  # unweighted
    assert found["r_acc_std"] == pytest.approx(np.std([0.9, 0.5, 0.8]))  # of the population
    assert found["r_acc_min"] == 0.5
    assert found["clients"]["b"] == {"side": "retained", "asr": None, "accuracy": 0.5, "samples": 2}
    assert utility(evaluation, ["a", "missing"])["r_acc"] == 0.9
    assert utility(Evaluation({}), ["a"]) == {"r_acc": None, "r_acc_std": None, "r_acc_min": None, "clients": {}}


def test_cost_and_phases_are_counted() -> None:
    rounds = [
        {"stage": stage, "phase": phase, "step": step, "seconds": 0.5, "bytes_up": 10, "bytes_down": 20, "passes": 4.1}
        for stage, phase, step in [
            ("unlearned", "improve", 0.1),
            ("unlearned", "improve", None),
            ("unlearned", "expand", 0.1),
            ("unlearned", "expand", None),
            ("unlearned", "improve", 0.2),
            ("recovered", "recover", 0.2),
            ("recovered", "recover", None),
        ]
    ]
    assert summary.cost(rounds) == {"rounds": 7, "seconds": 3.5, "bytes_up": 70, "bytes_down": 140, "passes": 28.7}
    del rounds[3]["passes"]  # of an earlier version
    assert summary.cost(rounds)["passes"] is None
    assert summary.phases(rounds) == {"improve": 2, "expand": 1, "failed": 2}
    assert summary.cost([]) == {"rounds": 0, "seconds": 0, "bytes_up": 0, "bytes_down": 0, "passes": 0}
    own = [{"stage": "unlearned", "phase": "mine"}]  # a method that knows no steps has not failed
    assert summary.phases(own) == {"improve": 0, "expand": 0, "failed": 0}
    renewal = [{"stage": "unlearned", "phase": "renew"}] * 3
    assert summary.phases([*renewal, *rounds]) == {"renew": 3, "improve": 2, "expand": 1, "failed": 2}


def stage(asr: float | None, r_acc: float | None, forget_acc: float | None = 0.9) -> dict[str, Any]:
    return {"asr": asr, "r_acc": r_acc, "forget_acc": forget_acc, "distance": 1.0, "clients": {}}


@pytest.mark.parametrize(
    ("unlearned", "recovered", "kept"),
    [
        (stage(0.02, 0.8), stage(0.02, 0.9), "recovered"),
        (stage(0.02, 0.8), stage(0.02, 0.8), "recovered"),
        (stage(0.02, 0.8), stage(0.029, 0.9), "recovered"),  # within a point
        (stage(0.02, 0.8), stage(0.04, 0.9), "unlearned"),  # brings knowledge back
        (stage(0.02, 0.8), stage(0.01, 0.79), "unlearned"),  # loses accuracy
        (stage(None, 0.8, 0.3), stage(None, 0.9, 0.3), "recovered"),
        (stage(None, 0.8, 0.3), stage(None, 0.9, 0.4), "unlearned"),
        (stage(0.02, 0.8, 0.3), stage(0.02, 0.9, 0.9), "recovered"),  # where there is a trigger, it decides
        (stage(0.02, 0.8), stage(0.02, None), "unlearned"),  # nobody could say how useful it is
        (stage(0.02, 0.8), stage(None, 0.9, None), "unlearned"),  # nobody could say whether it has come back
    ],
)
def test_model_to_keep(unlearned: dict[str, Any], recovered: dict[str, Any], kept: str) -> None:
    first = stage(0.9, 0.9)
    assert summary.better({"initial": first, "unlearned": unlearned, "recovered": recovered}) == kept


def test_model_to_keep_before_recovery() -> None:
    assert summary.better({"initial": stage(0.9, 0.9)}) == "initial"
    assert summary.better({"initial": stage(0.9, 0.9), "unlearned": stage(0.9, 0.1)}) == "unlearned"


def test_verdict_says_what_was_measured() -> None:
    measured = {"initial": stage(0.8, 0.91), "unlearned": stage(0.031, 0.85), "recovered": stage(0.029, 0.905)}
    text = summary.verdict(measured, ["3", "7"], "recovered", [])
    assert all(word in text for word in ("clients 3 and 7", "2.9%", "80.0%", "90.5%", "91.0%"))
    kept = summary.verdict(measured, ["3"], "unlearned", [])
    assert all(word in kept for word in ("client 3", "3.1%", "85.0%", "the unlearned one is kept"))
    plain = {key: {**value, "asr": None} for key, value in measured.items()}
    assert "right on 90.0%" in summary.verdict(plain, ["3"], "recovered", [])
    trained = summary.verdict({"initial": stage(0.8, 0.91)}, ["3"], "initial", [])
    assert "before" not in trained


def test_verdict_claims_nothing_of_who_was_not_heard() -> None:
    measured = {"initial": stage(0.8, 0.9), "unlearned": stage(0.0, 0.9)}
    text = summary.verdict(measured, ["3", "7"], "unlearned", ["7"])
    claim, _, caveat = text.partition("Not verified for ")
    assert "7" not in claim.replace("clients 3", "").split("works")[0]
    assert caveat.startswith("7:")
    unknown = {"initial": stage(None, 0.9, None), "unlearned": stage(None, 0.9, None)}
    text = summary.verdict(unknown, ["3", "7"], "unlearned", ["3", "7"])
    assert "an unknown share" in text
    assert "Not verified for 3, 7" in text
    for word in (" 0.0%", "has forgotten", "is forgotten", "are forgotten", "erased"):
        assert word not in text


def test_verdict_says_whose_backdoor_it_is() -> None:
    clients = {"3": {"asr": 0.0}, "7": {"asr": None}}
    measured = {"initial": stage(0.8, 0.9), "unlearned": {**stage(0.0, 0.9), "clients": clients}}
    text = summary.verdict(measured, ["3", "7"], "unlearned", [])
    assert "The backdoor of client 3 works in 0.0% of all tries" in text
    assert "nothing of client 7" in text


@pytest.mark.parametrize("missing", [{}, {"c": "gone"}, {"a": "gone"}, {"a": "gone", "b": "gone"}])
def test_a_forget_client_that_is_not_heard_makes_it_unverified(missing: dict[str, str]) -> None:
    measured = {"initial": stage(0.8, 0.9), "unlearned": stage(0.0, 0.9)}
    summary = conclude(measured, [], ["a", "b", "c"], ["a", "b"], missing)
    unheard = bool({"a", "b"} & set(missing))
    assert summary["status"] == ("unverified" if unheard else "complete")
    assert ("Not verified" in summary["verdict"]) == unheard
    assert summary["missing"] == missing
    assert (summary["clients"], summary["forget"], summary["final"]) == (["a", "b", "c"], ["a", "b"], "unlearned")


def test_nobody_to_forget_nothing_to_say() -> None:
    assert conclude({"initial": stage(None, 0.9, None)}, [], ["a", "b"], [], {})["verdict"] == ""


def test_measuring_a_model() -> None:
    """A model that always says class 0, and a client that does not answer."""
    model = torch.nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    x = torch.zeros(4, 2)
    splits = {
        "a": {"train": (x, torch.tensor([0, 1, 1, 1])), "test": (x, torch.tensor([0, 0, 0, 0]))},
        "b": {"train": (x, torch.tensor([0, 0, 1, 1])), "test": (x, torch.tensor([0, 0, 0, 1]))},
        "c": {"train": (x, torch.tensor([0, 0, 0, 1])), "test": (x, torch.tensor([0, 0, 1, 1]))},
    }
    splits["a"]["trigger"] = (x, torch.tensor([2, 2, 2, 0]))
    w = torch.tensor([0.0] * 6 + [1.0, 0.0, 0.0])
    without_b = FaultyFederation(SimulatedFederation(model, splits), {"b": always(Failure("timed out"))})
    found, missing = measure(without_b, w, w + 2, ["a"], ["b", "c"])
    assert missing == {"b": "timed out"}
    assert (found["asr"], found["asr_max"], found["forget_acc"]) == (0.25, 0.25, 0.25)
    assert (found["r_acc"], found["r_acc_std"], found["r_acc_min"]) == (0.5, 0.0, 0.5)
    assert found["distance"] == pytest.approx(6.0)
    assert found["mia_auc"] is None
    assert set(found["clients"]) == {"a", "c"}
