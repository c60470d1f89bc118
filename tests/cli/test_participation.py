"""A share of the clients per round, from the command line and from the experiment file."""

import json
from pathlib import Path

from .commands import EXPERIMENT
from .conftest import Call


def sampled(run: Path) -> list[list[str] | None]:
    return [json.loads(line).get("sampled") for line in (run / "rounds.jsonl").read_text().splitlines()]


def test_by_an_option_of_the_method(call: Call, small: Path, tmp_path: Path) -> None:
    ended = call(
        "unlearn", small / "trained", "--set", "participation=0.4", "--set", "rounds=3", "--out", tmp_path / "a"
    )
    assert ended.code == 0, ended.err
    samples = sampled(tmp_path / "a")
    assert [len(s or ()) for s in samples] == [1] * 7  # of three who stay, in both stages
    assert len({tuple(s or ()) for s in samples}) > 1
    assert sampled(small / "forgotten") == [None] * 10
    page = (tmp_path / "a" / "report.html").read_text()
    assert "Every client answered every question." in page  # who is not drawn is not missing


def test_by_the_experiment_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text(
        EXPERIMENT.replace("rounds = 6\n", "rounds = 4\nparticipation = 0.6\n", 1).replace(
            "rounds = 6,", "rounds = 2, participation = 0.7,"
        )
    )
    assert call("train", tmp_path / "file.toml", "--out", tmp_path / "trained").code == 0
    assert [len(s or ()) for s in sampled(tmp_path / "trained")] == [3] * 4
    assert call("unlearn", tmp_path / "trained", "--out", tmp_path / "run").code == 0
    assert [len(s or ()) for s in sampled(tmp_path / "run")] == [2] * 6
    retrain = ("unlearn", tmp_path / "trained", "--method", "retrain", "--set", "rounds=2")
    assert call(*retrain, "--out", tmp_path / "again").code == 0
    assert [len(s or ()) for s in sampled(tmp_path / "again")] == [2] * 2  # as the training: .6 of three


def test_a_share_that_is_none_is_refused(call: Call, small: Path, tmp_path: Path) -> None:
    ended = call("unlearn", small / "trained", "--set", "participation=0", "--out", tmp_path / "a")
    assert ended.code == 2
    assert "participation must be above 0, not 0" in ended.err
    (tmp_path / "file.toml").write_text("[train]\nparticipation = 1.2")
    ended = call("train", tmp_path / "file.toml", "--out", tmp_path / "b")
    assert ended.code == 2
    assert "train.participation = 1.2" in ended.err
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
