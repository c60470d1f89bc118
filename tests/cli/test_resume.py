"""Killed at any moment, a run that is resumed ends exactly as if nothing had happened."""

import json
import random
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .commands import EXPERIMENT, SCRIPT, Process, files, forked

Moment = Callable[[Path], bool]


def lines(count: int) -> Moment:
    return lambda run: (run / "rounds.jsonl").is_file() and (run / "rounds.jsonl").read_bytes().count(b"\n") >= count


def exists(name: str) -> Moment:
    return lambda run: (run / name).exists()


def later(seconds: float) -> Moment:
    start: dict[Path, float] = {}

    def passed(run: Path) -> bool:
        return time.monotonic() - start.setdefault(run, time.monotonic()) > seconds

    return passed


def half_written(run: Path) -> bool:
    return any(run.rglob(".*.part"))


draw = random.Random(0)
MOMENTS: dict[str, Moment] = {
    "directory": lambda run: run.exists(),
    "configuration": exists("config.toml"),
    "checkpoint": exists("checkpoint/state.safetensors"),
    "line 1": lines(1),
    "line 3": lines(3),
    "half a file": half_written,
    "summary": exists("summary.json"),
    **{f"after {seconds:.2f} s": later(seconds) for seconds in (draw.uniform(0.1, 0.8) for _ in range(3))},
}


def without_time(run: Path) -> dict[str, Any]:
    """Return everything in a run directory that must not depend on when it was made."""
    held: dict[str, Any] = {name: data for name, data in files(run).items() if name.endswith(".safetensors")}
    held["rounds"] = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    for record in held["rounds"]:
        del record["seconds"]
    summary = json.loads((run / "summary.json").read_text())
    del summary["created"], summary["cost"]["seconds"]
    held["names"] = set(files(run))
    lines = (run / "config.toml").read_text().splitlines()
    config = [line for line in lines if not line.startswith("trained = ")]  # a path, as seen from the run
    return {**held, "summary": summary, "config": config}


def same(run: Path, finished: Path) -> None:
    found, expected = without_time(run), without_time(finished)
    assert found.keys() == expected.keys()
    for key in found:
        assert found[key] == expected[key], key


def command(kind: str, small: Path) -> tuple[object, ...]:
    return ("train", small / "small.toml") if kind == "train" else ("unlearn", small / "trained")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", ["train", "unlearn"])
def test_killed_once(kind: str, moment: str, small: Path, tmp_path: Path) -> None:
    start = (*command(kind, small), "--out", "run")
    Process(*start, cwd=tmp_path).kill_when(lambda: MOMENTS[moment](tmp_path / "run"))
    ended = forked(*start, "--resume", cwd=tmp_path)
    assert ended.code == 0, ended.err
    same(tmp_path / "run", small / ("trained" if kind == "train" else "forgotten"))


FAILING = ("--set", "lr=10")  # the first improvements fail, and expansions follow with the same gradients


@pytest.fixture(scope="module")
def failing(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never interrupted."""
    place = tmp_path_factory.mktemp("failing")
    assert forked(*command("unlearn", small), *FAILING, "--out", "run", cwd=place).code == 0
    rounds = [json.loads(line) for line in (place / "run/rounds.jsonl").read_text().splitlines()]
    assert [(r["phase"], r["step"] is None) for r in rounds[:2]] == [("improve", True), ("expand", True)]
    return place / "run"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_killed_after_a_failed_improvement(count: int, small: Path, failing: Path, tmp_path: Path) -> None:
    """The next round would have had the gradients in memory; what is recorded must not tell."""
    start = (*command("unlearn", small), *FAILING, "--out", "run")
    Process(*start, cwd=tmp_path).kill_when(lambda: lines(count)(tmp_path / "run"))
    ended = forked(*start, "--resume", cwd=tmp_path)
    assert ended.code == 0, ended.err
    found, expected = without_time(tmp_path / "run"), without_time(failing)
    assert found == expected


def test_killed_in_recovery(small: Path, tmp_path: Path) -> None:
    start = (*command("unlearn", small), "--out", "run")
    Process(*start, cwd=tmp_path).kill_when(lambda: exists("unlearned.safetensors")(tmp_path / "run"))
    ended = forked(*start, "--resume", cwd=tmp_path)
    assert ended.code == 0, ended.err
    same(tmp_path / "run", small / "forgotten")


def test_killed_again_and_again(small: Path, tmp_path: Path) -> None:
    start = (*command("unlearn", small), "--out", "run", "--resume")
    for count in (1, 2, 4, 7, 9):
        Process(*start, cwd=tmp_path).kill_when(lambda count=count: lines(count)(tmp_path / "run"))  # type: ignore[misc]
    assert forked(*start, cwd=tmp_path).code == 0
    same(tmp_path / "run", small / "forgotten")


def test_unlearning_waits_for_the_training(small: Path, tmp_path: Path) -> None:
    start = (*command("train", small), "--out", "run")
    Process(*start, cwd=tmp_path).kill_when(lambda: lines(2)(tmp_path / "run"))
    before = files(tmp_path / "run")
    ended = forked("unlearn", "run", "--out", "forgotten", cwd=tmp_path)
    assert ended.code == 2
    assert "run is not finished" in ended.err
    assert "--resume" in ended.err
    assert files(tmp_path / "run") == before
    assert not (tmp_path / "forgotten").exists()


LONG = EXPERIMENT.replace("rounds = 6\n", "rounds = 400\n")


@pytest.mark.parametrize("kind", ["train", "unlearn"])
def test_interrupted_by_the_user(kind: str, small: Path, tmp_path: Path) -> None:
    """Ctrl-C on the installed script: it says how to go on, and that is how one goes on."""
    (tmp_path / "a long one.toml").write_text(LONG)
    start = (
        ["train", "a long one.toml"] if kind == "train" else ["unlearn", str(small / "trained"), "--set", "rounds=90"]
    )
    process = subprocess.Popen(
        [SCRIPT, *start, "--out", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore Ctrl-C
    )
    deadline = time.monotonic() + 60
    while not lines(3)(tmp_path / "run"):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    (again,) = re.findall(r"^Continue with: fupareto (.*)$", err, re.MULTILINE)
    args = shlex.split(again)
    assert args == [*start, "--out", "run", "--resume"]
    assert not list(tmp_path.rglob(".*.part"))
    *rounds, _ = (tmp_path / "run/rounds.jsonl").read_bytes().splitlines()  # the last may have lacked its checkpoint
    if kind == "train":  # enough to see that it goes on from there
        Process(*args, cwd=tmp_path).kill_when(lambda: lines(len(rounds) + 3)(tmp_path / "run"))
        assert (tmp_path / "run/rounds.jsonl").read_bytes().splitlines()[: len(rounds)] == rounds
    else:
        assert forked(*args, cwd=tmp_path).code == 0
        assert (tmp_path / "run/summary.json").is_file()
