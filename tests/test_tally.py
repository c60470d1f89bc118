"""The tally of checks, and the sentence that carries it."""

import pytest

from fupareto.tally import tally, tally_of, with_tally, without_tally, words

MADE = [{"result": "shown"}, {"result": "open"}, {"result": "shown"}, {"result": "refuted"}, {"result": "odd"}]


def test_counting() -> None:
    assert tally(MADE) == {"shown": 2, "open": 2, "refuted": 1}
    assert words(tally(MADE)) == "2 shown, 2 open, 1 refuted"
    assert tally([]) == {"shown": 0, "open": 0, "refuted": 0}


def test_the_summary_is_asked_before_the_audit() -> None:
    held = {"shown": 4, "open": 1, "refuted": 1}
    audit = {"verdict": {"checks": MADE}}
    assert tally_of({"checks": held}, audit) == held
    assert tally_of({}, audit) == tally(MADE)
    assert tally_of({"checks": None}, audit) == tally(MADE)


@pytest.mark.parametrize("audit", [None, {}, {"verdict": None}, {"verdict": {"checks": []}}, {"verdict": "good"}])
def test_without_checks_there_is_no_tally(audit: dict[str, object] | None) -> None:
    assert tally_of({}, audit) is None
    assert tally_of({"checks": {"shown": "4"}}, audit) is None
    assert words(None) == "none made"


def test_a_verdict_has_one_tally() -> None:
    once = with_tally("It works in 0.6% of all tries.", None)
    assert once == "It works in 0.6% of all tries. Checks: none made."
    twice = with_tally(once, {"shown": 4, "open": 1, "refuted": 1})
    assert twice == "It works in 0.6% of all tries. Checks: 4 shown, 1 open, 1 refuted."
    assert without_tally(twice) == "It works in 0.6% of all tries."
    assert with_tally("", None) == "Checks: none made."
