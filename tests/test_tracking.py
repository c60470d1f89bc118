"""Trackers hold the numbers of rounds.jsonl, across a restart, and never cost a run."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fupareto
from federation import worlds
from fupareto import FedAvg, UserError, tracking
from fupareto.federation import SimulatedFederation
from fupareto.run.directory import Run
from fupareto.tracking import TRACKERS, Tracking, flat, numbers

TRAINING = FedAvg(rounds=4, lr=0.05, batch_size=20)


class Interrupted(BaseException):
    """What a killed process sees."""


def train(out: Path, *names: str, rounds: int = TRAINING.rounds, resume: bool = False) -> None:
    """Train with trackers; stop after ``rounds``."""
    federation = SimulatedFederation(worlds.plain(), worlds.clients())
    with Tracking(names, out) as log:

        def watch(record: dict[str, Any]) -> None:
            log(record)
            if record["round"] == rounds < TRAINING.rounds:
                raise Interrupted

        fupareto.train(federation, federation.fresh(0), TRAINING, out=out, resume=resume, watch=watch)


def interrupted_and_resumed(out: Path, *names: str) -> dict[str, list[tuple[int, float]]]:
    """Train in two goes; return every number of rounds.jsonl as (round, value) by name."""
    with pytest.raises(Interrupted):
        train(out, *names, rounds=2)
    train(out, *names, resume=True)
    found: dict[str, list[tuple[int, float]]] = {}
    for record in Run.open(out).rounds():
        for name, value in numbers(record).items():
            found.setdefault(name, []).append((record["round"], value))
    assert {"r_acc", "lr", "seconds", "bytes_up"} <= set(found)
    assert len(found["r_acc"]) == TRAINING.rounds
    return found


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    wanted = interrupted_and_resumed(tmp_path / "a", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "a/tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(wanted)
    for name, values in wanted.items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in values], name


@pytest.mark.filterwarnings("default")  # mlflow has warnings of its own
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: its tracker is not tested")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    wanted = interrupted_and_resumed(tmp_path / "a", "mlflow")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("fupareto").experiment_id])
    assert (run.info.run_name, run.info.status) == ("a", "FINISHED")
    assert run.data.params["method.lr"] == "0.05"
    for name, values in wanted.items():
        found = sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name))
        assert found == values, name


@pytest.mark.filterwarnings("default")
def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: its tracker is not tested")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    wanted = interrupted_and_resumed(tmp_path / "a", "wandb")
    found: dict[str, list[tuple[int, float]]] = {}
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2  # one for each go, of the same run
    assert {path.stem for path in files} == {f"run-{json.loads((tmp_path / 'a' / tracking.IDS).read_text())['wandb']}"}
    for path in files:
        for name, step, value in offline(path):
            if name in wanted:
                found.setdefault(name, []).append((step, value))
    assert found == wanted


def offline(path: Path) -> list[tuple[str, int, float]]:
    """Return (name, step, value) of every number in a file that wandb wrote offline."""
    from wandb.proto import wandb_internal_pb2

    found = []
    for data in pieces(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            for item in record.history.item:
                value = json.loads(item.value_json)
                if isinstance(value, int | float):
                    found.append((item.key or item.nested_key[0], record.history.step.num, float(value)))
    return found


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file in LevelDB's log format, with wandb's header of seven bytes."""
    at, begun = 7, b""
    while at + 7 <= len(data):
        if 2**15 - at % 2**15 < 7:  # the rest of a block that is too short for a header
            at += 2**15 - at % 2**15
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        begun += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield begun
            begun = b""


def test_a_tracker_that_is_missing_or_unknown_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"'tensorbord' is unknown.*did you mean 'tensorboard'"):
        train(tmp_path / "a", "tensorbord")
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    for name in TRACKERS:
        with pytest.raises(UserError, match=rf"not installed: pip install 'fupareto\[{name}\]'"):
            train(tmp_path / "a", name)
    assert not (tmp_path / "a").exists()


class Broken:
    """A tracker whose server goes away."""

    package = "json"

    def __init__(self, place: Run, known: str | None, first: int) -> None:
        if known == "unreachable":
            raise OSError("connection refused")
        self.id: str | None = "42"

    def log(self, round_: int, numbers: Any) -> None:
        if round_ == 2:
            raise OSError("connection lost")
        assert round_ == 1

    def close(self, failed: bool) -> None:
        raise AssertionError("it was given up")


def test_a_tracker_that_fails_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(TRACKERS, "broken", Broken)
    with caplog.at_level(logging.WARNING):
        train(tmp_path / "a", "broken")
    assert Run.open(tmp_path / "a").finished
    assert [r.message for r in caplog.records] == ["logging to broken has stopped: connection lost"]


def test_a_tracker_that_cannot_be_opened_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRACKERS, "broken", Broken)
    with pytest.raises(Interrupted):
        train(tmp_path / "a", rounds=1)
    (tmp_path / "a" / tracking.IDS).write_text('{"broken": "unreachable"}')
    with pytest.raises(UserError, match="cannot log to broken: connection refused; the run can be continued"):
        train(tmp_path / "a", "broken", resume=True)
    train(tmp_path / "a", resume=True)
    assert Run.open(tmp_path / "a").finished


def test_numbers_and_parameters() -> None:
    record = {"round": 3, "phase": "improve", "lr": 0.1, "step": None, "forgotten": True, "losses": {"a": 1.0}, "n": 2}
    assert numbers(record) == {"lr": 0.1, "n": 2.0}
    assert flat({"a": {"b": 1, "c": {"d": [2]}}, "e": None}) == {"a.b": 1, "a.c.d": [2], "e": None}
