"""The verdict: what it takes to show, to refute and to leave open, and that no more is claimed."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from fupareto.audit.attacks.roc import interval
from fupareto.audit.checks import Check, Thresholds, checks, paragraph, verdict
from fupareto.audit.exclusivity import exclusivity
from fupareto.errors import UserError


def result(auc: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"auc": auc, "low": low, "high": high, **more}


def client(accuracy: float, samples: int, asr: float | None = None, tries: int = 0) -> dict[str, Any]:
    side = "retained" if asr is None and not tries else "forget"
    return {"side": side, "asr": asr, "accuracy": accuracy, "samples": samples, "asr_samples": tries}


def stage(asr: float | None, r_acc: float, forget_acc: float, n: int = 4000) -> dict[str, Any]:
    clients = {"1": client(forget_acc, n, asr, n), "4": client(r_acc, n), "5": client(r_acc, n)}
    return {"asr": asr, "asr_max": asr, "r_acc": r_acc, "forget_acc": forget_acc, "clients": clients}


def summary(n: int = 4000, **changes: Any) -> dict[str, Any]:
    stages = {"initial": stage(0.8, 0.80, 0.9, n), "unlearned": stage(0.01, 0.81, 0.7, n)}
    return {"forget": ["1"], "missing": {}, "final": "unlearned", "stages": stages, **changes}


def lost(*changes: tuple[float, int]) -> dict[str, Any]:
    """Exclusivity of clients that changed by so much, measured on so many samples."""
    before = {"clients": {str(i): client(0.9, n) for i, (_, n) in enumerate(changes)}}
    after = {"clients": {str(i): client(0.9 + c, n) for i, (c, n) in enumerate(changes)}}
    return exclusivity(before, after, [], [])


def audit(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "membership": {"unlearned": {"clients": {"1": {"attacks": {"confidence": result(0.52, 0.45, 0.58)}}}}},
        "told_apart": None,
        "truth": {
            "retrained": stage(0.02, 0.8, 0.68),
            "retrained-2": stage(0.02, 0.8, 0.68),
            "stages": {"unlearned": apart(0.03), "retrained-2": apart(0.028)},
        },
        "dormancy": dormancy(0.02, 0.01),
        "relearning": {"models": {"initial": {"missing": []}, "unlearned": {"missing": []}}},
        "way": {"relearning": gone(0.9, 0.85, 0.95), "divergence": gone(0.8, 0.7, 0.9)},
        "exclusivity": lost((-0.03, 4000), (0.01, 4000)),
    }
    return {**found, **changes}


def apart(bits: float, error: float = 0.001) -> dict[str, float]:
    return {"divergence": bits, "divergence_error": error, "disagreement": 0.1}


def gone(value: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    values = {"initial": {"value": 0.9}, "unlearned": {"value": 0.35}, "retrained": {"value": 0.3}}
    reason = "no way to go" if value is None else None
    return {"values": values, "models": {"unlearned": {"value": value, "low": low, "high": high, "reason": reason}}}


def dormancy(own: float, retrained: float | None, n: int = 4000, measure: str = "asr") -> dict[str, Any]:
    def curve(worst: float) -> dict[str, Any]:
        clients = {"1": {"value": worst, "samples": n, "round": 7}}
        return {"worst": worst, "worst_round": 7, "clients": clients, "r_acc": 0.8, "missing": [], "idle": 0}

    models = {"initial": curve(0.8), "unlearned": curve(own)}
    models |= {} if retrained is None else {"retrained": curve(retrained)}
    return {"measure": measure, "rounds": 40, "lr": 0.1, "models": models}


def without_mark(run: dict[str, Any]) -> dict[str, Any]:
    stages = {}
    for name, found in run["stages"].items():
        clients = {i: {**c, "asr": None} for i, c in found["clients"].items()}
        stages[name] = {**found, "asr": None, "asr_max": None, "clients": clients}
    return {**run, "stages": stages}


def results(summary: dict[str, Any], audit: dict[str, Any], **limits: float) -> dict[str, str]:
    return {check.name: check.result for check in checks(summary, audit, Thresholds(**limits))}


def test_everything_shown() -> None:
    assert set(results(summary(), audit()).values()) == {"shown"}


DECIDES = {
    "asr": {"forgotten"},
    "forget_gap": {"unknown", "lasting"},
    "r_acc_loss": {"useful"},
    "client_loss": {"exclusive"},
    "leak": {"private"},
    "relearning": {"removed"},
    "spread": {"alike"},
}


@pytest.mark.parametrize("limit", [f.name for f in dataclasses.fields(Thresholds)])
def test_every_threshold_decides_its_own_check_and_no_other(limit: str) -> None:
    limits: dict[str, float] = {limit: 1.0 if limit == "relearning" else 0.0}
    run, found = summary(), audit()
    if limit == "asr":  # with a retrained model, no more is asked than that reaches
        found |= {"truth": None}
    if limit == "forget_gap":  # without a trigger
        run = without_mark(run)
    if limit == "r_acc_loss":
        run["stages"]["unlearned"] = stage(0.01, 0.797, 0.7, 40000)
        run["stages"]["initial"] = stage(0.8, 0.80, 0.9, 40000)
    before, strict = results(run, found), results(run, found, **limits)
    assert {name: before[name] for name in DECIDES[limit]} == dict.fromkeys(DECIDES[limit], "shown")
    assert {name for name in before if strict[name] != before[name]} == DECIDES[limit]


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
    nothing = audit(membership={}, truth=None, dormancy=None, way=None, exclusivity={"clients": {}})
    found = results(summary(), nothing)
    assert found == {
        "forgotten": "shown",
        "lasting": "open",
        "useful": "shown",
        "exclusive": "open",
        "private": "open",
        "alike": "open",
        "removed": "open",
    }
    plain = without_mark(summary())
    assert results(plain, nothing)["unknown"] == "open"  # low accuracy alone shows nothing without a trigger
    assert results(plain, audit())["unknown"] == "shown"
    assert results(summary(missing={"1": "timed out"}), audit())["forgotten"] == "open"
    assert results(without_mark(summary(missing={"1": "timed out"})), audit())["unknown"] == "open"
    untested = summary()
    for found_ in untested["stages"].values():
        found_["clients"] = {i: c for i, c in found_["clients"].items() if c["side"] == "forget"}
    assert results(untested, audit())["useful"] == "open"


def test_a_mark_that_was_never_learnt_cannot_be_forgotten() -> None:
    run = summary()
    run["stages"]["initial"] = stage(0.03, 0.8, 0.9)
    assert results(run, audit())["forgotten"] == "open"
    assert results(run, audit())["lasting"] == "open"


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.9, 0.8, 1.0, "shown"),
        (0.5, 0.4, 0.6, "refuted"),
        (0.75, 0.65, 0.85, "open"),
        (1.4, 1.2, 1.6, "shown"),
        (None, None, None, "open"),
    ],
)
def test_relearning_goes_by_the_way_gone(
    value: float | None, low: float | None, high: float | None, expected: str
) -> None:
    found = audit(way={"relearning": gone(value, low, high)})
    assert results(summary(), found)["removed"] == expected


@pytest.mark.parametrize(
    ("own", "spread", "error", "expected"),
    [
        (0.04, 0.03, 0.001, "shown"),
        (0.05, 0.03, 0.001, "refuted"),
        (0.044, 0.03, 0.002, "open"),
        (0.02, 0.01, 0.008, "open"),  # two retrained models that do not differ beyond chance
        (0.2, None, 0.001, "open"),  # one retrained model: nobody knows how much they differ
    ],
)
def test_outputs_are_measured_by_two_retrained_models(
    own: float, spread: float | None, error: float, expected: str
) -> None:
    stages = {"unlearned": apart(own, error)} | ({} if spread is None else {"retrained-2": apart(spread, error)})
    found = audit()
    found["truth"]["stages"] = stages
    [check] = [c for c in checks(summary(), found, Thresholds()) if c.name == "alike"]
    assert check.result == expected
    assert "80% of the way" in check.text
    assert ("--retrain 2" in check.text) == (spread is None)


@pytest.mark.parametrize(
    ("own", "retrained", "tries", "expected"),
    [
        (0.02, 0.01, 4000, "shown"),
        (0.2, 0.01, 4000, "refuted"),
        (0.2, 0.19, 4000, "shown"),  # so does a model that never saw the mark
        (0.2, 0.1, 4000, "refuted"),
        (0.02, None, 4000, "shown"),
        (0.02, 0.01, 30, "open"),
    ],
)
def test_a_mark_that_comes_back_refutes(own: float, retrained: float | None, tries: int, expected: str) -> None:
    [check] = [
        c
        for c in checks(summary(), audit(dormancy=dormancy(own, retrained, tries)), Thresholds())
        if c.name == "lasting"
    ]
    assert check.result == expected
    assert "within 40 further rounds" in check.claim


@pytest.mark.parametrize(("count", "words"), [(0, "0 further rounds"), (1, "1 further round"), (2, "2 further rounds")])
def test_further_rounds_are_counted_in_words(count: int, words: str) -> None:
    found = dormancy(0.02, None, 4000)
    found["models"]["unlearned"]["clients"]["1"]["round"] = count
    [check] = [c for c in checks(summary(), audit(dormancy=found), Thresholds()) if c.name == "lasting"]
    assert check.text.startswith(f"after {words}, ")
    assert Thresholds().claim("lasting", rounds=count).startswith(f"within {words} of training")


def test_every_client_is_judged_at_its_own_worst_round() -> None:
    """The mean is largest in round 2; client 1 was beyond the limit in round 1."""
    found = dormancy(0.04, None)
    found["models"]["unlearned"]["clients"] = {
        "1": {"value": 0.09, "samples": 4000, "round": 1},
        "2": {"value": 0.04, "samples": 4000, "round": 2},
    }
    [check] = [c for c in checks(summary(), audit(dormancy=found), Thresholds()) if c.name == "lasting"]
    assert check.result == "refuted"
    assert check.text.startswith("after 1 further round, the mark of client 1 works in 9.0%")


def test_rounds_in_which_nobody_trained_show_nothing() -> None:
    found = dormancy(0.02, 0.01)
    found["models"]["unlearned"]["idle"] = 40
    [check] = [c for c in checks(summary(), audit(dormancy=found), Thresholds()) if c.name == "lasting"]
    assert (check.result, check.text) == (
        "open",
        "in 40 of 40 further rounds no retained client trained the model on",
    )


def test_a_model_that_further_training_ruins_shows_nothing() -> None:
    """It answers everything alike, so its mark works always or never."""
    for worst in (0.0, 0.9):
        found = dormancy(worst, 0.01)
        found["models"]["unlearned"]["r_acc"] = 0.1
        [check] = [c for c in checks(summary(), audit(dormancy=found), Thresholds()) if c.name == "lasting"]
        assert check.result == "open"
        assert "ruins the model" in check.text
        assert "from 81.0% to 10.0%" in check.text


ABOUT = {"1": {"forgotten", "lasting", "private", "alike", "removed"}, "4": {"useful", "exclusive"}}


@pytest.mark.parametrize("silent", ABOUT)
def test_who_did_not_answer_leaves_every_claim_about_them_open(silent: str) -> None:
    found = checks(summary(missing={silent: "timed out"}), audit(), Thresholds())
    assert {check.name for check in found if check.result == "open"} == ABOUT[silent]
    assert all(f"{silent} did not answer" in check.text for check in found if check.result == "open")


def test_who_is_missing_in_one_measurement_leaves_its_claim_open() -> None:
    relearnt, apart_ = audit(), audit()
    relearnt["relearning"]["models"]["initial"]["missing"] = ["1"]
    apart_["truth"]["stages"]["unlearned"]["missing"] = ["1"]
    assert {name for name, r in results(summary(), relearnt).items() if r != "shown"} == {"removed"}
    assert {name for name, r in results(summary(), apart_).items() if r != "shown"} == {"alike"}


@pytest.mark.parametrize(("own", "retrained", "expected"), [(0.7, 0.69, "shown"), (0.9, 0.7, "refuted")])
def test_accuracy_that_comes_back_refutes(own: float, retrained: float, expected: str) -> None:
    run = without_mark(summary())
    found = audit(dormancy=dormancy(own, retrained, measure="forget_acc"))
    assert results(run, found)["lasting"] == expected
    assert results(run, audit(dormancy=dormancy(own, None, measure="forget_acc")))["lasting"] == "open"


@pytest.mark.parametrize(
    ("difference", "error", "learned", "expected"),
    [
        (0.02, 0.01, False, "shown"),
        (0.2, 0.01, False, "refuted"),
        (-0.2, 0.01, False, "refuted"),
        (-0.2, 0.01, True, "shown"),
        (0.02, 0.2, False, "open"),
    ],
)
def test_membership_is_read_against_a_retrained_model(
    difference: float, error: float, learned: bool, expected: str
) -> None:
    """An AUC of 0.8 is no leak where a model that never saw the samples has it too."""
    told = {"auc": 0.8 - difference, "difference": difference, "error": error}
    own = result(0.8, 0.78, 0.82, learned=learned, against=told)
    [check] = [c for c in checks(summary(), attacks(own), Thresholds()) if c.name == "private"]
    assert check.result == expected
    assert "retrained model" in check.claim


def test_a_change_of_loss_says_nothing_without_a_retrained_model() -> None:
    found = audit(membership={"unlearned": {"clients": {"1": {"attacks": {"delta": result(0.9, 0.85, 0.95)}}}}})
    assert results(summary(), found)["private"] == "open"


def test_models_that_are_told_apart_refute() -> None:
    apart = {"auc": 1.0, "low": 0.9, "high": 1.0, "with": 8, "without": 8, "clients": {"1": {}}}
    assert results(summary(), audit(told_apart=apart))["unseen"] == "refuted"
    assert results(summary(), audit(told_apart={**apart, "low": 0.42, "high": 0.58}))["unseen"] == "shown"
    assert results(summary(), audit(told_apart={**apart, "low": 0.3}))["unseen"] == "open"


def test_the_paragraph_says_each_thing_once_and_under_its_result() -> None:
    found = [
        Check("useful", "it is useful", "shown", "plus one point"),
        Check("private", "it is private", "refuted", "an AUC of 0.9"),
        Check("removed", "it is removed", "open", "not measured"),
    ]
    text = paragraph("Measured so and so.", found)
    assert text.startswith("Measured so and so. Shown: ")
    shown, rest = text.split(" Refuted: ")
    refuted, still = rest.split(" Open: ")
    assert "it is useful (plus one point)" in shown
    assert "it is private" in refuted
    assert "it is removed" in still
    assert "none of them shows that anybody's data were deleted" in still


def test_the_verdict_carries_its_tally() -> None:
    made = checks(summary(), audit(truth=None, way=None), Thresholds())
    found = verdict("Measured so and so. Checks: none made.", made)
    assert found["tally"] == {"shown": 5, "open": 2, "refuted": 0}
    assert found["text"].startswith("Measured so and so. Checks: 5 shown, 2 open, 0 refuted. Shown: ")
    assert [check["name"] for check in found["checks"]] == [check.name for check in made]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([(-0.071, 14)], "open"),  # one sample of 14: no harm that anybody can show, none that can be ruled out
        ([(0.0, 14)], "open"),
        ([(0.0, 14), (0.0, 4000)], "open"),
        ([(-0.03, 4000)], "shown"),
        ([(-0.03, 4000)] * 50, "shown"),
        ([(-0.11, 4000)], "open"),  # beyond the limit, but not beyond chance
        ([(-0.15, 4000), (0.0, 14)], "refuted"),
        ([(-0.4, 40), (-0.5, 4)], "refuted"),
    ],
)
def test_losses_of_single_clients_go_by_their_test_samples(changes: list[tuple[float, int]], expected: str) -> None:
    assert results(summary(), audit(exclusivity=lost(*changes)))["exclusive"] == expected


def test_the_claim_on_losses_says_what_was_tested() -> None:
    found = {c.name: c for c in checks(summary(), audit(exclusivity=lost((-0.071, 14))), Thresholds(client_loss=0.08))}
    assert found["exclusive"].claim == "no retained client lost more than 8 points of accuracy"
    assert "-7.1 points" in found["exclusive"].text
    assert "14 test samples" in found["exclusive"].text
    assert found["exclusive"].low is not None
    assert found["exclusive"].low < -0.08


def test_the_client_that_refutes_is_named() -> None:
    [check] = [
        c
        for c in checks(summary(), audit(exclusivity=lost((-0.5, 4), (-0.4, 40))), Thresholds())
        if c.name == "exclusive"
    ]
    assert "client 1," in check.text  # client 0 lost more, of fewer samples


def test_a_retained_client_that_did_not_answer_is_not_called_unharmed() -> None:
    assert results(summary(missing={"9": "timed out"}), audit())["exclusive"] == "open"


@pytest.mark.parametrize(
    ("asr", "tries", "expected"),
    [(0.0, 30, "open"), (0.0, 200, "shown"), (1 / 30, 30, "open"), (0.5, 30, "refuted"), (0.04, 150, "open")],
)
def test_the_mark_goes_by_the_number_of_tries(asr: float, tries: int, expected: str) -> None:
    run = summary()
    run["stages"]["unlearned"] = stage(asr, 0.81, 0.7, tries)
    assert results(run, audit())["forgotten"] == expected


@pytest.mark.parametrize(
    ("change", "n", "expected"),
    [(0.0, 100, "open"), (0.0, 40000, "shown"), (-0.03, 100, "open"), (-0.03, 40000, "refuted"), (0.2, 100, "shown")],
)
def test_usefulness_goes_by_the_number_of_samples(change: float, n: int, expected: str) -> None:
    run = summary()
    run["stages"] = {"initial": stage(0.8, 0.7, 0.9, n), "unlearned": stage(0.01, 0.7 + change, 0.7, n)}
    assert results(run, audit())["useful"] == expected


def attacks(*found: dict[str, Any]) -> dict[str, Any]:
    return audit(membership={"unlearned": {"clients": {"1": {"attacks": dict(enumerate(found))}}}})


def test_a_learned_attack_below_one_half_is_chance() -> None:
    low = result(0.42, 0.30, 0.5, learned=True)
    assert results(summary(), attacks(low))["private"] == "shown"
    assert results(summary(), attacks({**low, "learned": False}))["private"] == "open"
    strongest = result(0.53, 0.47, 0.59, learned=False)
    [check] = [c for c in checks(summary(), attacks(low, strongest), Thresholds()) if c.name == "private"]
    assert check.value == 0.53
    apart = {**result(0.3, 0.1, 0.5, learned=True), "with": 8, "without": 8, "clients": {"1": {}}}
    assert results(summary(), audit(told_apart=apart))["unseen"] == "shown"


def two(first: float | None, last: float | None) -> dict[str, Any]:
    """Return a run that forgot a second client, with its ASR before and after."""
    run = summary(forget=["1", "2"])
    for name, asr in (("initial", first), ("unlearned", last)):
        run["stages"][name]["clients"]["2"] = {**client(0.9, 4000, asr, 4000), "side": "forget"}
    return run


def of_two(**changes: Any) -> dict[str, Any]:
    """Return an audit in which both clients were attacked, and measured after further training."""
    found = audit(**changes)
    found["membership"]["unlearned"]["clients"]["2"] = found["membership"]["unlearned"]["clients"]["1"]
    for curve in found["dormancy"]["models"].values():
        curve["clients"]["2"] = curve["clients"]["1"]
    return found


def test_a_client_that_nobody_attacked_is_not_called_private() -> None:
    run, found = two(0.8, 0.01), of_two()
    assert results(run, found)["private"] == "shown"
    told = {**result(0.5, 0.45, 0.55), "with": 8, "without": 8, "clients": {"1": {}}}
    del found["membership"]["unlearned"]["clients"]["2"]
    made = {check.name: check for check in checks(run, {**found, "told_apart": told}, Thresholds())}
    assert {made[name].result for name in ("private", "unseen")} == {"open"}
    assert "2 was not attacked" in made["private"].text
    found["membership"]["unlearned"]["clients"]["1"] = {"attacks": {"confidence": result(0.9, 0.85, 0.95)}}
    assert results(run, found)["private"] == "refuted"


@pytest.mark.parametrize(
    ("first", "last", "words"), [(None, None, "2 carries no mark"), (0.01, 0.0, "never learnt the mark of client 2")]
)
def test_a_mark_shows_nothing_of_a_client_without_one(first: float | None, last: float | None, words: str) -> None:
    assert {results(two(0.8, 0.01), of_two())[name] for name in ("forgotten", "lasting")} == {"shown"}
    made = {check.name: check for check in checks(two(first, last), of_two(), Thresholds())}
    for name in ("forgotten", "lasting"):
        assert made[name].result == "open"
        assert words in made[name].text


def test_a_retrained_model_that_further_training_ruins_is_no_measure() -> None:
    found = dormancy(0.6, 1.0)
    assert results(summary(), audit(dormancy=found))["lasting"] == "shown"  # as often as from a retrained model
    found["models"]["retrained"]["r_acc"] = 0.1
    assert results(summary(), audit(dormancy=found))["lasting"] == "refuted"


def test_who_did_not_measure_the_retrained_model_leaves_the_comparison_open() -> None:
    run = without_mark(two(0.8, 0.8))
    found = of_two(dormancy=dormancy(0.7, 0.69, measure="forget_acc"))
    found["truth"]["retrained"] = stage(None, 0.8, 0.7)
    made = results(run, found)
    assert made["unknown"] == "open"
    del found["dormancy"]["models"]["retrained"]["clients"]["2"]
    assert results(run, found)["lasting"] == "open"


def test_chance_alone_seldom_refutes_many_attacks() -> None:
    """Forty attacks on data that nobody trained on: at 95 % each, two would be beyond any limit of 0."""
    rng = np.random.default_rng(0)
    refuted = 0
    for _ in range(60):
        found = [interval(rng.normal(size=25), rng.normal(size=25)).to_json() for _ in range(40)]
        refuted += results(summary(), attacks(*found), leak=0.0)["private"] == "refuted"
    assert refuted <= 6


@pytest.mark.parametrize(
    "wrong", [{"asr": 2}, {"asr": "low"}, {"asr": True}, {"asr": -0.1}, {"asrr": 0.1}, {"spread": 11}]
)
def test_wrong_thresholds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="threshold"):
        Thresholds.of(wrong)


def test_a_check_tells_of_the_attack_that_decides_it() -> None:
    """The attack with the larger AUC is within the limit for certain; the other one leaves the check open."""
    certain, wide = result(0.56, 0.54, 0.58), result(0.5, 0.3, 0.7)
    [check] = [c for c in checks(summary(), attacks(certain, wide), Thresholds()) if c.name == "private"]
    assert (check.result, check.value) == ("open", 0.5)
    assert check.low is not None
    assert check.high is not None
    assert check.low < 0.4 < 0.6 < check.high


def test_a_check_tells_of_the_client_that_decides_it() -> None:
    run = summary()
    clients = run["stages"]["unlearned"]["clients"]
    clients["1"] = client(0.7, 4000, 0.03, 4000)
    clients["2"] = client(0.7, 4000, 0.0, 20)  # too few tries to say anything
    [check] = [c for c in checks(run, audit(truth=None), Thresholds()) if c.name == "forgotten"]
    assert check.result == "open"
    assert "client 2 works in 0.0% of 20 tries" in check.text
