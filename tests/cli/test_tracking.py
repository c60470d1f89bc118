"""The option --log: the rounds of a command in a tracker."""

from pathlib import Path

import pytest

from fupareto.run.directory import Run
from fupareto.tracking import numbers

from .commands import forked
from .conftest import Call


def test_rounds_are_logged_and_the_audit_is_not(small: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for args in (
        ("train", small / "small.toml", "--out", "a", "--log", "tensorboard"),
        ("unlearn", "a", "--out", "b", "--log", "tensorboard", "--json"),
    ):
        ended = forked(*args, cwd=tmp_path)
        assert ended.code == 0, ended.err
    for name in ("a", "b"):
        events = accumulator.EventAccumulator(str(tmp_path / name / "tensorboard"))
        events.Reload()
        rounds = Run.open(tmp_path / name).rounds()
        assert set(events.Tags()["scalars"]) == {key for record in rounds for key in numbers(record)}
        found = [(event.step, event.value) for event in events.Scalars("r_acc")]
        assert found == [(r["round"], pytest.approx(r["r_acc"])) for r in rounds if "r_acc" in r]
        model = (tmp_path / name / "initial.safetensors").read_bytes()
        assert model == (small / "trained" / "initial.safetensors").read_bytes()  # as without --log


def test_an_unknown_tracker_is_a_mistake(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call("train", "demo", "--out", "a", "--log", "tensorbord")
    assert ended.code == 2
    assert "did you mean 'tensorboard'" in ended.err
    assert not list(tmp_path.iterdir())
