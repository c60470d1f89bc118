"""An audit made again, against the one that is certified."""

import copy
from pathlib import Path
from typing import Any

import pytest

from fupareto.errors import UserError
from fupareto.evidence import FAILED, NOT_CHECKED, OK, compare, load, verify

from .conftest import AUDIT


@pytest.fixture(scope="session")
def certificate(made: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from fupareto.evidence import certify

    return load(certify(made / "first", tmp_path_factory.mktemp("again")))


def changed(value: dict[str, Any], place: str, new: Any) -> dict[str, Any]:
    found = copy.deepcopy(value)
    *way, last = place.split(".")
    inner: Any = found
    for key in way:
        inner = inner[int(key) if isinstance(inner, list) else key]
    inner[int(last) if isinstance(inner, list) else last] = new
    return found


def test_the_same_again(certificate: dict[str, Any]) -> None:
    found = compare(certificate, certificate["summary"], certificate["audit"])
    assert [(f.level, f.about) for f in found] == [(OK, "summary"), (OK, "audit")]
    assert all("All " in f.text and "exactly" in f.text for f in found)


def test_time_and_place_may_differ(certificate: dict[str, Any]) -> None:
    summary = {**certificate["summary"], "created": "now", "versions": {"torch": "9"}, "verdict": "Other words."}
    audit = changed(changed(changed(AUDIT, "created", "now"), "truth.seconds", 99.0), "verdict.text", "Other words.")
    assert {f.level for f in compare(certificate, summary, audit)} == {OK}
    assert len(compare(certificate, summary, audit)) == 2


@pytest.mark.parametrize(
    ("place", "new", "level"),
    [
        ("membership.recovered.mean.confidence.auc", 0.534, OK),
        ("membership.recovered.mean.confidence.auc", 0.536, FAILED),
        ("membership.recovered.mean.confidence.auc", None, NOT_CHECKED),
        ("truth.stages.recovered.asr", 0.1, NOT_CHECKED),
        ("truth", None, NOT_CHECKED),
        ("relearning.rounds", 5, FAILED),
        ("relearning.models.recovered.curve", [0.1, 0.4, 0.5], FAILED),
        ("relearning.models.recovered.curve.1", 0.404, OK),
        ("tier", True, FAILED),
        ("seed", 0.0, OK),
        ("verdict.checks.0.result", "refuted", FAILED),
        ("verdict.checks.0.result", "open", FAILED),
    ],
)
def test_one_difference(certificate: dict[str, Any], place: str, new: Any, level: str) -> None:
    _, whole, one = compare(certificate, certificate["summary"], changed(AUDIT, place, new))
    assert whole.level == OK
    assert " of " in whole.text
    assert (one.level, one.about) == (level, f"audit.{place}")
    if level != NOT_CHECKED and not isinstance(new, list):
        assert repr(new) in one.text


def test_both_values_are_given(certificate: dict[str, Any]) -> None:
    final = certificate["summary"]["final"]
    was = certificate["summary"]["stages"][final]["r_acc"]
    summary = changed(certificate["summary"], f"stages.{final}.r_acc", was - 0.25)
    found = compare(certificate, summary, AUDIT)
    [one] = [f for f in found if f.level == FAILED]
    assert one.text == f"summary.stages.{final}.r_acc: {was!r} is certified, {was - 0.25!r} was measured now."
    assert {f.level for f in compare(certificate, summary, AUDIT, tolerance=0.3)} == {OK}


def test_large_numbers_may_differ_by_a_share(certificate: dict[str, Any]) -> None:
    certified = changed(certificate, "summary.stages.unlearned.distance", 1000.0)
    for now, level in ((1004.0, OK), (1006.0, FAILED)):
        summary = changed(certificate["summary"], "stages.unlearned.distance", now)
        assert compare(certified, summary, AUDIT)[1].level == level


def test_which_model_is_kept_may_not_differ(certificate: dict[str, Any]) -> None:
    found = compare(certificate, {**certificate["summary"], "final": "initial", "status": "unverified"}, AUDIT)
    assert {f.about for f in found if f.level == FAILED} == {"summary.final", "summary.status"}


def test_what_only_one_of_them_has(certificate: dict[str, Any]) -> None:
    found = compare(certificate, certificate["summary"])
    assert [(f.level, f.about) for f in found] == [(OK, "summary"), (NOT_CHECKED, "audit")]
    found = compare({**certificate, "audit": None}, certificate["summary"], AUDIT)
    assert [(f.level, f.about) for f in found] == [(OK, "summary"), (NOT_CHECKED, "audit")]
    assert len(compare({**certificate, "audit": None}, certificate["summary"])) == 1


@pytest.mark.parametrize(
    ("certified", "again", "words"),
    [
        ({"tier": 2}, {}, "the attacks of tier 2"),
        (
            {"stages": ["initial", "recovered", "retrained"]},
            {"stages": ["initial", "recovered"]},
            "the retrained model",
        ),
        ({"dormancy": {"rounds": 40}}, {"dormancy": None}, "further training"),
    ],
)
def test_an_audit_that_is_repeated_in_part_does_not_contradict(
    certificate: dict[str, Any], certified: dict[str, Any], again: dict[str, Any], words: str
) -> None:
    """Checks that were decided by what is missing now may come out otherwise; numbers that were measured may not."""
    held = {**certificate, "audit": {**AUDIT, **certified}}
    audit = changed({**AUDIT, **again}, "verdict.checks.0.result", "refuted")
    found = compare(held, {**certificate["summary"], "checks": {"shown": 9}}, audit)
    assert not [f for f in found if f.level == FAILED]
    assert words in found[-1].text
    assert (found[-1].level, found[-1].about) == (NOT_CHECKED, "audit.verdict")
    other = changed(audit, "membership.recovered.mean.confidence.auc", 0.9)
    assert FAILED in {f.level for f in compare(held, certificate["summary"], other)}


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf")])
def test_tolerance(certificate: dict[str, Any], tolerance: float) -> None:
    with pytest.raises(UserError, match="tolerance must be a number from 0 on"):
        compare(certificate, certificate["summary"], tolerance=tolerance)


def test_as_part_of_verifying(run: Path) -> None:
    content = load(run / "certificate.json")
    found = verify(run / "certificate.json", again=(content["summary"], AUDIT))
    assert {f.about for f in found if f.level == NOT_CHECKED} == {"signature", "truth", "method", "position"}
    found = verify(run / "certificate.json", again=(content["summary"], changed(AUDIT, "seed", 1)), tolerance=0.1)
    assert [f.about for f in found if f.level == FAILED] == ["audit.seed"]
