"""Who gained and who lost, and whom an update opposed, by hand."""

import pytest

from fupareto.audit.exclusivity import exclusivity


def stage(**accuracy: float | None) -> dict[str, object]:
    clients = {i: {"side": "retained", "asr": None, "accuracy": a} for i, a in accuracy.items()}
    return {"clients": {**clients, "gone": {"side": "forget", "asr": 0.1, "accuracy": 0.2}}}


def test_gains_and_losses_by_hand() -> None:
    found = exclusivity(stage(a=0.5, b=0.8, c=0.7, d=None, e=0.9), stage(a=0.75, b=0.6, c=0.704, d=0.5), [], ["gone"])
    assert set(found["clients"]) == {"a", "b", "c"}
    assert found["clients"]["a"] == {"before": 0.5, "after": 0.75, "change": 0.25}
    assert (found["gained"], found["lost"], found["same"]) == (1, 1, 1)
    assert found["worst"] == {"client": "b", "change": pytest.approx(-0.2)}
    assert found["conflicts"] == []
    assert exclusivity(stage(), stage(), [], ["gone"])["worst"] is None


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
