"""Samples, classes and one client after the other, from the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .commands import files
from .conftest import Call

Mistake = Callable[..., str]
FEW = ("--set", "rounds=2", "--set", "recovery_rounds=1", "-q")


def summary(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "summary.json").read_text())
    return found


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No report is drawn; one test draws it, and drawing takes longer than these runs."""
    monkeypatch.setattr("fupareto.cli.common.report", lambda run: run.path / "report.html")


def test_samples(call: Call, small: Path, tmp_path: Path) -> None:
    (tmp_path / "samples.json").write_text('{"3": [0, 17], "1": [5]}')
    args = ("unlearn", small / "trained", "--out", tmp_path / "run", "--samples", tmp_path / "samples.json", *FEW)
    assert call(*args).code == 0
    assert "1/forget" in (tmp_path / "run/report.html").read_text()
    assert summary(tmp_path / "run")["forget"] == ["1/forget", "3/forget"]
    request = json.loads((tmp_path / "run/request.json").read_text())
    assert request["samples"] == {"3": [0, 17], "1": [5]}
    assert call(*args, "--resume").code == 0
    (tmp_path / "samples.json").write_text('{"3": [0, 18]}')
    assert "another request" in call(*args, "--resume").err


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize(("text", "wanted"), [("4", [4]), ("4, 7,4", [4, 7])])
def test_classes(call: Call, small: Path, tmp_path: Path, text: str, wanted: list[int]) -> None:
    ended = call("unlearn", small / "trained", "--out", tmp_path / "run", "--classes", text, *FEW)
    assert ended.code == 0
    assert json.loads((tmp_path / "run/request.json").read_text())["classes"] == wanted
    found = summary(tmp_path / "run")
    assert found["forget"] == [f"{i}/forget" for i in range(5)]
    assert call("audit", tmp_path / "run").code == 0
    assert summary(tmp_path / "run")["stages"] == found["stages"]


@pytest.mark.usefixtures("unseen")
def test_sequential(call: Call, small: Path, tmp_path: Path) -> None:
    args = ("unlearn", small / "trained", "--clients", "3,1", "--out", tmp_path / "run", "--sequential", *FEW)
    assert call(*args).code == 0
    rounds = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert [r["request"] for r in rounds] == ["3"] * 3 + ["1"] * 3
    assert [r["round"] for r in rounds] == [1, 2, 3, 4, 5, 6]
    assert [r["stage"] for r in rounds] == ["unlearned", "unlearned", "recovered"] * 2
    found = summary(tmp_path / "run")
    assert found["method"] == "fupareto, one by one"
    assert found["forget"] == ["1", "3"]
    assert call(*args, "--resume").code == 0
    at_once = tuple(a for a in args if a != "--sequential")
    assert "do not match (another method" in call(*at_once, "--resume").err


@pytest.mark.usefixtures("unseen")
def test_a_history_recorded_and_used(call: Call, small: Path, tmp_path: Path) -> None:
    args = ("train", small / "small.toml", "--record", "federaser, fupga,fedau", "--out", tmp_path / "trained")
    ended = call(*args)
    assert ended.code == 0
    assert "Recording for federaser" in ended.err
    assert (tmp_path / "trained/initial.safetensors").read_bytes() == (
        small / "trained/initial.safetensors"
    ).read_bytes()
    for method in ("federaser", "fupga", "fedau"):
        out = tmp_path / method
        assert call("unlearn", tmp_path / "trained", "--method", method, "--out", out, *FEW).code == 0
        assert summary(out)["method"] == method


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"3": [0, 17', ("samples.json must be JSON", '{"3": [0, 17]}')),
        ("[1, 2]", ("samples.json must be JSON that maps client ids to row numbers",)),
        ('"3"', ("samples.json must be JSON",)),
        ("{}", ("samples.json must be JSON",)),
        ('{"3": 5}', ("samples.json must be JSON",)),
        ('{"3": "01"}', ("the rows of client '3' must be a list of integers",)),
        ('{"3": [1.5]}', ("the rows of client '3' must be a list of integers",)),
        ('{"3": [true]}', ("the rows of client '3' must be a list of integers",)),
        ('{"3": [null]}', ("the rows of client '3' must be a list of integers",)),
        ('{"3": [[1]]}', ("the rows of client '3' must be a list of integers",)),
        ('{"3": []}', ("no client has",)),
        ('{"3": [9999]}', ("client '3' has training samples 0 to", "names 9999")),
        ('{"3": [-1]}', ("client '3' has training samples 0 to", "names -1")),
        ('{"8": [1]}', ("samples of client '8'", "0, 1, 2, 3, 4")),
    ],
)
def test_mistakes_in_samples(mistake: Mistake, small: Path, text: str, says: tuple[str, ...]) -> None:
    Path("samples.json").write_text(text)
    before = files(small)
    mistake("unlearn", small / "trained", "--out", "run", "--samples", "samples.json", says=says)
    assert files(small) == before


def test_samples_that_cannot_be_read(mistake: Mistake, small: Path) -> None:
    start = ("unlearn", small / "trained", "--out", "run", "--samples")
    mistake(*start, "nothing.json", says=("cannot read nothing.json", "No such file"))
    mistake(*start, ".", says=("cannot read .", "directory"))
    Path("bytes.json").write_bytes(b"\xff\xfe{}")
    mistake(*start, "bytes.json", says=("bytes.json must be JSON",))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--classes", "four"), ("classes must be numbers, such as 4 or 4,7, not 'four'",)),
        (("--classes", "4.0"), ("classes must be numbers",)),
        (("--classes", ""), ("no class is named",)),
        (("--classes", "11"), ("no client has training samples of class 11",)),
        (("--classes", "-1"), ("no client has",)),
        (("--classes", "99999999999999999999999"), ("no client has",)),
        (("--classes", "0,1,2,3,4,5,6,7,8,9"), ("forgets everything",)),
        (("--classes", "4", "--clients", "1"), ("names clients, or samples, or classes",)),
        (("--classes", "4", "--method", "federaser"), ("FedEraser forgets whole clients only", "fupareto")),
        (("--classes", "4", "--method", "fupga"), ("FUPGA forgets whole clients only",)),
        (("--classes", "4", "--method", "fedau"), ("FedAU forgets whole clients only",)),
        (("--classes", "4", "--sequential"), ("needs a request for clients",)),
        (("--clients", "1,9", "--sequential"), ("no client '9'",)),
        (("--clients", "0,1,2,3,4", "--sequential"), ("forgets everything",)),
        (("--method", "federaser"), ("FedEraser needs a history", "--record federaser")),
        (("--method", "fupga"), ("FUPGA needs a history", "--record fupga")),
        (("--method", "fedau"), ("FedAU needs a history", "--record fedau")),
    ],
)
def test_mistakes_in_requests(mistake: Mistake, small: Path, args: tuple[str, ...], says: tuple[str, ...]) -> None:
    before = files(small)
    mistake("unlearn", small / "trained", "--out", "run", *args, says=says)
    assert files(small) == before


@pytest.mark.parametrize("record", ["fedosd", "federaser,fupgaa", "federaser fupga"])
def test_a_history_that_nobody_needs(mistake: Mistake, small: Path, record: str) -> None:
    mistake(
        "train", small / "small.toml", "--record", record, "--out", "run", says=("train.record", "'federaser', 'fupga'")
    )
