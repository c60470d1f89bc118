"""The inventory from the command line: what it says of damaged runs, and that a purge of them removes nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .commands import Ended, files

Call = Callable[..., Ended]


@pytest.fixture
def runs(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a training and of a run that answered a request."""
    monkeypatch.chdir(tmp_path)
    for name in ("trained", "forgotten"):
        shutil.copytree(small / name, tmp_path / "runs" / name)
    return tmp_path / "runs"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def answer(runs: Path) -> Path:
    return runs / f"forgotten/{json.loads((runs / 'forgotten/summary.json').read_text())['final']}.safetensors"


def test_a_purge_keeps_the_answer(call: Call, runs: Path) -> None:
    before, kept = files(runs), answer(runs)
    assert "--purge removes nothing" not in call("inventory", "runs").out
    ended = call("inventory", "runs", "--purge", "--yes")
    assert ended.code == 0, ended.err
    assert "Removed" in ended.err
    assert kept.is_file()
    assert not (runs / "trained/initial.safetensors").exists()
    assert files(runs) != before
    again = call("inventory", "runs", "--purge", "--yes")
    assert (again.code, "Nothing to purge." in again.err) == (0, True)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda runs: (runs / "forgotten/request.json").unlink(), "request.json is missing, although manifest.json"),
        (lambda runs: (runs / "forgotten/config.toml").unlink(), "it has no config.toml"),
        (lambda runs: answer(runs).unlink(), "is missing, although manifest.json lists it"),
        (lambda runs: cut(answer(runs)), "its SHA-256 is not that in manifest.json"),
    ],
)
def test_a_purge_beside_a_damaged_run_removes_nothing(
    call: Call, runs: Path, harm: Callable[[Path], object], says: str
) -> None:
    harm(runs)
    before = files(runs)
    listed = call("inventory", "runs")
    assert listed.code == 0
    assert says in listed.out
    for path in ("runs/forgotten/initial.safetensors", "runs/forgotten/replay", "runs/trained/initial.safetensors"):
        assert path in listed.out
    assert "--purge removes nothing, because 1 run cannot be read." in listed.out
    assert "No run here" not in listed.out
    ended = call("inventory", "runs", "--purge", "--yes")
    assert ended.code == 2
    assert "Error: nothing was removed: runs/forgotten is not readable: " in ended.err
    assert says in ended.err
    assert files(runs) == before
    assert json.loads(call("inventory", "runs", "--json").out)["artefacts"]


def test_nothing_is_claimed_beside_remarks(call: Call, runs: Path) -> None:
    """That no request was answered is said only where everything could be examined."""
    shutil.rmtree(runs / "forgotten")
    assert "No run here has answered a request." in call("inventory", "runs").out
    shutil.copy(runs / "trained/initial.safetensors", runs / "deployed.safetensors")
    ended = call("inventory", "runs")
    assert "belong to no run: deployed.safetensors" in ended.out
    assert "No run here" not in ended.out
    assert "No request was found; see the notes." in ended.out
