"""Commands killed at random moments and given again: models, rounds and summaries are those of commands that were not.

``make kills`` does this a hundred times; here it is a few.
"""

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from fupareto import evidence

from .commands import Process, forked

KILLS = int(os.environ.get("FUPARETO_KILLS", "5"))
EXPERIMENT = """
name = "small"
data = { samples = 300 }
partition = { kind = "iid", clients = 4 }
train = { rounds = 4, record = ["fupga"] }
request = { clients = 1 }
unlearn = { options = { lr = 0.05, rounds = 4, recovery_rounds = 3 } }
"""
BENCH = """
name = "tiny"
title = "Digits"
seeds = [0]

[experiment]
data = { samples = 200 }
partition = { kind = "iid", clients = 3 }
train = { rounds = 2 }

[[settings]]
name = "A"
experiment = { request = { clients = 1 } }

[[methods]]
method = "fupareto"
label = "FUPareto"
options = { lr = 0.05, rounds = 2, recovery_rounds = 2 }
"""
COMMANDS: dict[str, tuple[str, ...]] = {  # in the order in which they build on each other
    "train": ("train", "small.toml", "--out", "trained"),
    "unlearn": ("unlearn", "trained", "--out", "run"),
    "audit": ("audit", "run", "--retrain", "1", "--dormancy", "2"),
    "certify": ("certify", "run"),
    "bench": ("bench", "bench.toml", "--out", "bench"),
}
TIMES = ("created", "seconds", "received")
NOT_COMPARED = ("certificate.json", "manifest.json", "cost.md", "cost.tex")  # hashes and times


def timeless(value: Any) -> Any:
    """Return a JSON value without the entries that hold times."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMES}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def content(place: Path) -> dict[str, Any]:
    """Return what must not depend on when it was made, of every file."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in place.rglob("*") if p.is_file() and not p.name.startswith("log-")):
        name, data = str(path.relative_to(place)), path.read_bytes()
        found[name] = None
        if path.name in NOT_COMPARED or path.suffix in (".html", ".svg", ".png"):
            continue
        if path.suffix in (".json", ".jsonl"):
            found[name] = [
                timeless(json.loads(part)) for part in ([data] if path.suffix == ".json" else data.splitlines())
            ]
        else:
            found[name] = data
    return found


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], dict[str, float]]:
    """Return the directories after each command, none of which was killed, and how long each command took."""
    place, seconds = tmp_path_factory.mktemp("kills"), {}
    (place / "start").mkdir()
    (place / "start/small.toml").write_text(EXPERIMENT)
    (place / "start/bench.toml").write_text(BENCH)
    before, found = place / "start", {"start": place / "start"}
    for name, command in COMMANDS.items():
        now = shutil.copytree(before, place / name)
        begin = time.monotonic()
        ended = forked(*command, cwd=now)
        seconds[name] = time.monotonic() - begin
        assert ended.code == 0, ended.err
        for log in now.glob("log-*"):
            log.unlink()
        before = found[name] = now
    return found, seconds


def test_killed_at_random_moments(stages: tuple[dict[str, Path], dict[str, float]], tmp_path: Path) -> None:
    places, seconds = stages
    names, draw, killed = list(COMMANDS), random.Random(KILLS), 0
    for number in range(3 * KILLS):
        name = names[number % len(names)]
        place = shutil.copytree(places[["start", *names][names.index(name)]], tmp_path / str(number))
        process = Process(*COMMANDS[name], cwd=place, drawing=0.0)
        time.sleep(draw.uniform(0, 0.8 * seconds[name]))
        process.process.kill()
        killed += process.end().code == -9
        again = COMMANDS[name] + (("--resume",) if name in ("train", "unlearn") else ())
        ended = forked(*again, cwd=place)
        assert ended.code == 0, f"{name}, kill {number}: {ended.err}"
        found, expected = content(place), content(places[name])
        assert found.keys() == expected.keys(), f"{name}, kill {number}"
        for key, value in expected.items():
            assert found[key] == value, f"{name}, kill {number}: {key}"
        if "run/certificate.json" in found:
            assert not [f for f in evidence.verify(place / "run/certificate.json") if f.level == evidence.FAILED]
        shutil.rmtree(place)
        print(f"{name}: {killed} of {number + 1} killed", flush=True)
        if killed == KILLS:
            break
    print(f"{killed} of {number + 1} commands were killed before their end; all ended the same")
    assert killed == KILLS or KILLS < 20  # of a few commands, many may end before the kill
