"""Runs find each other from any working directory, and after their whole tree was moved."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fupareto.cli import app
from fupareto.run.directory import Run
from fupareto.run.start import origin, trained_of

EXPERIMENT = """
name = "moved"
[data]
samples = 150
[partition]
kind = "iid"
clients = 4
[train]
rounds = 4
record = ["rewind"]
[request]
clients = ["1"]
[unlearn]
method = "rewind"
"""


def run(place: Path, *args: object) -> str:
    """Run a command in a directory and return what it printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("fupareto.cli.requests.report", lambda made: made.save_report("not drawn"))
        ended = CliRunner().invoke(app, [*map(str, args)], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.output


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training and a ledger with one answer, made by relative paths and then moved."""
    place = tmp_path_factory.mktemp("first")
    (place / "work").mkdir()
    (place / "work/federation.toml").write_text(EXPERIMENT)
    run(place / "work", "train", "federation.toml", "--out", "training", "--quiet")
    run(place / "work", "requests", "open", "training")
    run(place / "work", "requests", "add", "--clients", "1")
    run(place / "work", "requests", "answer", "1", "--quiet", "--dormancy", 0)
    assert Run.open(place / "work/ledger/runs/1").config["trained"] == "../../../training"
    shutil.move(place / "work", place / "elsewhere")
    return place


def test_a_moved_tree_is_verified_replayed_and_answered_from_anywhere(tree: Path) -> None:
    """The method rewind needs the history of the training, also for a request after another one."""
    ledger = tree / "elsewhere/ledger"
    found = json.loads(
        run(Path("/"), "verify", ledger / "runs/1", "--ledger", ledger, "--replay", "all", "--json", "--quiet")
    )["findings"]
    assert [one for one in found if one["level"] == "failed"] == []
    assert any(one["about"] == "round.1" and one["level"] == "ok" for one in found)
    run(tree, "requests", "add", "--clients", "2", "--ledger", "elsewhere/ledger")
    run(tree, "requests", "answer", "2", "--ledger", "elsewhere/ledger", "--quiet", "--dormancy", 0)
    assert json.loads((ledger / "runs/2/request.json").read_text())["left"] == ["1"]
    assert trained_of(Run.open(ledger / "runs/2")) == ledger / "runs/1"


def test_where_a_model_comes_from(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = tree / "elsewhere/training"
    monkeypatch.chdir(tree / "elsewhere")
    assert origin(Path("training"), Path("runs/a")) == "../../training"
    assert origin(training, None) == str(training)
    assert origin(None, Path("a")) is None
    place = Run(tmp_path)
    for named in ("training", str(training)):  # as runs named it before, seen from the working directory
        (tmp_path / "config.toml").write_text(f"format = 2\ntrained = {json.dumps(named)}\n")
        assert trained_of(place) == Path(named)
    (tmp_path / "config.toml").write_text('format = 2\ntrained = "gone"\n')
    assert trained_of(place) is None
