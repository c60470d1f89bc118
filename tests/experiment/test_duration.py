"""A run that takes longer than a day is not started without agreement; other runs are started without a question."""

from typing import Any

import pytest

from fupareto.config import validate
from fupareto.errors import UserError
from fupareto.experiment import duration, federation
from fupareto.methods import FedAvg

SMALL = {"data": {"samples": 100}, "partition": {"kind": "iid", "clients": 2}, "request": {"clients": 1}}


def refuse(sentence: str) -> bool:
    return False


def check(agree: duration.Agree, **options: Any) -> None:
    engine, w = federation(validate(SMALL, "here"))
    before = (engine.traffic.up, engine.traffic.down)
    try:
        duration.check(FedAvg(**options), engine, w, agree)
    finally:
        assert (engine.traffic.up, engine.traffic.down) == before


@pytest.mark.parametrize("options", [{"rounds": 10**9, "decay": 1.0}, {"rounds": 10, "epochs": 10**9}])
def test_a_long_run_needs_agreement(options: dict[str, Any]) -> None:
    asked: list[str] = []
    with pytest.raises(UserError, match=r"rounds.* takes at least .* (days|years) on this machine; .*--yes"):
        check(refuse, **options)

    def agree(sentence: str) -> bool:
        asked.append(sentence)
        return True

    check(agree, **options)
    assert len(asked) == 1
    assert f"{options['rounds']:,} rounds" in asked[0]


def test_other_runs_are_not_asked_about() -> None:
    check(refuse, rounds=200)
    check(refuse, rounds=11_000, decay=1.0)  # estimated: minutes


def test_a_duration_in_words() -> None:
    assert [duration.in_words(s) for s in (30, 7200, 86_400 * 2, 86_400 * 3652.5, 1e12)] == [
        "0.5 minutes",
        "2.0 hours",
        "2.0 days",
        "10.0 years",
        "31,688 years",
    ]
