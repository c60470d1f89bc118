"""Who gained and who lost, and whom an update opposed, by hand."""

from typing import Any

import pytest

from fupareto.audit.exclusivity import exclusivity


def stage(**accuracy: float | None) -> dict[str, Any]:
    clients = {i: {"side": "retained", "asr": None, "accuracy": a} for i, a in accuracy.items()}
    return {"clients": {**clients, "gone": {"side": "forget", "asr": 0.1, "accuracy": 0.2}}}


def test_gains_and_losses_by_hand() -> None:
    found = exclusivity(stage(a=0.5, b=0.8, c=0.7, d=None, e=0.9), stage(a=0.75, b=0.6, c=0.704, d=0.5), [], ["gone"])
    assert set(found["clients"]) == {"a", "b", "c"}
    unknown = dict.fromkeys(("samples", "low", "high"))
    assert found["clients"]["a"] == {"before": 0.5, "after": 0.75, "change": 0.25, **unknown}
    assert (found["gained"], found["lost"], found["same"]) == (1, 1, 1)
    assert found["worst"] == {"client": "b", "change": pytest.approx(-0.2)}
    assert found["conflicts"] == []
    assert exclusivity(stage(), stage(), [], ["gone"])["worst"] is None


def test_changes_have_an_interval_where_the_samples_were_counted() -> None:
    before, after = stage(a=0.9, b=0.9), stage(a=0.8, b=0.8)
    for measured in (before, after):
        measured["clients"] |= {i: {**measured["clients"][i], "samples": n} for i, n in (("a", 20), ("b", 2000))}
    found = exclusivity(before, after, [], ["gone"])["clients"]
    assert found["a"]["low"] < found["b"]["low"] < -0.1 < found["b"]["high"] < found["a"]["high"]
    alone = {i: {**stage["clients"], "b": stage["clients"]["gone"]} for i, stage in enumerate((before, after))}
    one = exclusivity({"clients": alone[0]}, {"clients": alone[1]}, [], ["gone"])["clients"]["a"]
    assert found["a"]["low"] < one["low"]  # looking at more clients costs certainty


def test_conflicts_are_counted_by_side() -> None:
    rounds = [
        {"round": 1, "phase": "improve", "cosines": {"gone": 0.5, "a": 0.25, "b": -0.75}},
        {"round": 2, "phase": "improve", "cosines": {}},
        {"round": 3, "phase": "recover", "cosines": {"a": 1.0, "b": -1e-9}},
    ]
    first, last = exclusivity(stage(a=1.0), stage(a=1.0), rounds, ["gone"])["conflicts"]
    assert first == {
        "round": 1,
        "phase": "improve",
        "forget": {"min": 0.5, "mean": 0.5, "negative": 0},
        "retained": {"min": -0.75, "mean": -0.25, "negative": 1},
    }
    assert (last["round"], last["forget"], last["retained"]["negative"]) == (3, None, 0)  # rounding opposes nobody
