"""The verdict: what it takes to show, to refute and to leave open, and that no more is claimed."""

import dataclasses
from typing import Any

import pytest

from fupareto.audit.checks import CLAIMS, Check, Thresholds, checks, paragraph
from fupareto.errors import UserError


def result(auc: float, low: float, high: float) -> dict[str, float]:
    return {"auc": auc, "low": low, "high": high}


def summary(**changes: Any) -> dict[str, Any]:
    before = {"asr": 0.8, "asr_max": 0.9, "r_acc": 0.80, "forget_acc": 0.9}
    after = {"asr": 0.01, "asr_max": 0.02, "r_acc": 0.81, "forget_acc": 0.7}
    found = {"forget": ["1"], "missing": {}, "final": "unlearned", "stages": {"initial": before, "unlearned": after}}
    return {**found, **changes}


def audit(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "membership": {"unlearned": {"clients": {"1": {"attacks": {"confidence": result(0.52, 0.45, 0.58)}}}}},
        "told_apart": None,
        "truth": {
            "retrained": {"asr": 0.02, "forget_acc": 0.68},
            "stages": {"unlearned": {"divergence": 0.03, "disagreement": 0.1}},
        },
        "relearning": {"limit": 30, "models": {"unlearned": {"rounds": 8}, "retrained": {"rounds": 10}}},
        "exclusivity": {"worst": {"client": "4", "change": -0.03}},
    }
    return {**found, **changes}


def results(summary: dict[str, Any], audit: dict[str, Any], **limits: float) -> dict[str, str]:
    return {check.name: check.result for check in checks(summary, audit, Thresholds(**limits))}


def test_everything_shown() -> None:
    assert set(results(summary(), audit()).values()) == {"shown"}


@pytest.mark.parametrize("limit", [f.name for f in dataclasses.fields(Thresholds)])
def test_every_threshold_decides_something(limit: str) -> None:
    limits: dict[str, float] = {limit: 1.0 if limit == "relearning" else 0.0}
    run, found = summary(), audit()
    if limit == "forget_gap":  # without a trigger
        run["stages"] = {k: {**v, "asr": None, "asr_max": None} for k, v in run["stages"].items()}
    if limit == "r_acc_loss":
        run["stages"]["unlearned"]["r_acc"] = 0.79
    assert "refuted" not in results(run, found).values()
    assert "shown" in results(run, found).values()
    strict = results(run, found, **limits)
    assert [r for r in strict.values() if r in ("refuted", "open")], strict


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.41, 0.59, "shown"),
        (0.61, 0.7, "refuted"),
        (0.2, 0.39, "refuted"),  # below one half is a leak too
        (0.45, 0.65, "open"),
        (0.0, 1.0, "open"),
        (0.35, 0.5, "open"),
    ],
)
def test_membership_goes_by_the_interval_on_both_sides(low: float, high: float, expected: str) -> None:
    for attack in ("confidence", "loss", "rmia", "u-lira"):
        clients = {
            "1": {"attacks": {"confidence": result(0.5, 0.45, 0.55)}},
            "2": {"attacks": {attack: result((low + high) / 2, low, high)}},
        }
        found = audit(membership={"unlearned": {"clients": clients}})
        assert results(summary(), found)["private"] == expected


def test_what_was_not_measured_is_open() -> None:
    nothing = audit(membership={}, truth=None, relearning=None, exclusivity={"worst": None})
    found = results(summary(), nothing)
    assert found == {
        "forgotten": "shown",
        "useful": "shown",
        "exclusive": "open",
        "private": "open",
        "alike": "open",
        "removed": "open",
    }
    plain = summary()
    plain["stages"] = {k: {**v, "asr": None, "asr_max": None} for k, v in plain["stages"].items()}
    assert results(plain, nothing)["unknown"] == "open"  # low accuracy alone shows nothing without a trigger
    assert results(plain, audit())["unknown"] == "shown"
    assert results(summary(missing={"1": "timed out"}), audit())["forgotten"] == "open"


def test_a_mark_that_was_never_learnt_cannot_be_forgotten() -> None:
    run = summary()
    run["stages"]["initial"] |= {"asr": 0.01, "asr_max": 0.03}
    assert results(run, audit())["forgotten"] == "open"


@pytest.mark.parametrize(
    ("own", "truth", "expected"),
    [
        (4, 10, "refuted"),
        (5, 10, "shown"),
        (None, 10, "shown"),
        (20, None, "shown"),
        (10, None, "refuted"),
        (3, 0, "open"),
    ],
)
def test_relearning_against_a_retrained_model(own: int | None, truth: int | None, expected: str) -> None:
    found = audit(relearning={"limit": 30, "models": {"unlearned": {"rounds": own}, "retrained": {"rounds": truth}}})
    assert results(summary(), found)["removed"] == expected


def test_models_that_are_told_apart_refute() -> None:
    apart = {"auc": 1.0, "low": 0.9, "high": 1.0, "with": 8, "without": 8}
    assert results(summary(), audit(told_apart=apart))["unseen"] == "refuted"
    assert results(summary(), audit(told_apart={**apart, "low": 0.42, "high": 0.58}))["unseen"] == "shown"
    assert results(summary(), audit(told_apart={**apart, "low": 0.3}))["unseen"] == "open"


def test_the_paragraph_says_each_thing_once_and_under_its_result() -> None:
    found = [
        Check("useful", "?", "shown", "plus one point"),
        Check("private", "?", "refuted", "an AUC of 0.9"),
        Check("removed", "?", "open", "not measured"),
    ]
    text = paragraph("Measured so and so.", found)
    assert text.startswith("Measured so and so. Shown: ")
    shown, rest = text.split(" Refuted: ")
    refuted, still = rest.split(" Open: ")
    assert CLAIMS["useful"] in shown
    assert CLAIMS["private"] in refuted
    assert CLAIMS["removed"] in still
    assert "none of them shows that anybody's data were deleted" in still
    assert {
        check.name
        for check in checks(
            summary(), audit(told_apart={"auc": 1, "low": 1, "high": 1, "with": 2, "without": 2}), Thresholds()
        )
    } == set(CLAIMS) - {"unknown"}


@pytest.mark.parametrize("wrong", [{"asr": 2}, {"asr": "low"}, {"asr": True}, {"asr": -0.1}, {"asrr": 0.1}])
def test_wrong_thresholds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="threshold"):
        Thresholds.of(wrong)
