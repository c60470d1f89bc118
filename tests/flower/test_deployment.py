"""Flower for real: a SuperLink, four SuperNodes and `flwr run` as processes, some of them killed in the middle.

The app is the example's, so what the documentation shows is what runs here. Everything runs cold and warm, and warm
with another version of Flower where FUPARETO_OTHER_FLOWER names one (`make test-flower`).
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fupareto
from fupareto.run.directory import Run

from .deployed import CLIENTS, OTHER, assert_as_expected, config, with_other
from .example import APP
from .processes import Deployment, deployment

pytestmark = pytest.mark.deployment


KINDS = {"cold": (False, None), "warm": (True, None), "warm, another Flower": (True, OTHER)}
PARAMS = [pytest.param(kind, marks=[with_other] if "another" in kind else []) for kind in KINDS]


@pytest.fixture(scope="module", params=PARAMS, ids=list(KINDS))
def open_link(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    warm, other = KINDS[request.param]
    place, flower = tmp_path_factory.mktemp("open"), Path(other) if other else None
    with deployment(place, CLIENTS, tls=False, warm=warm, flower=flower) as running:
        yield running


def until(found: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 900.0) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.2)


def rounds_of(out: Path) -> int:
    return len((out / "rounds.jsonl").read_text().splitlines()) if (out / "rounds.jsonl").is_file() else 0


def test_the_models_are_those_of_the_simulated_engine(
    open_link: Deployment, start: Path, expected: fupareto.Result, tmp_path: Path
) -> None:
    done = open_link.run(APP, config(start, tmp_path / "run"))
    assert open_link.status() == "finished:completed", done.stdout
    assert_as_expected(Run.open(tmp_path / "run"), expected)
    assert "round 3 of 3" in done.stdout
    assert "report.html" in done.stdout


def test_a_mistake_ends_the_run_with_its_reason(open_link: Deployment, start: Path, tmp_path: Path) -> None:
    done = open_link.run(APP, config(start, tmp_path / "run").replace('forget="7"', 'forget="9"'))
    assert "no client '9' in the federation; it has 0, 1, 2, 7" in done.stdout
    assert open_link.status() == "finished:failed"
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_killed_goes_on_where_it_was(
    open_link: Deployment, start: Path, expected: fupareto.Result, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    first = open_link.start_run(APP, config(start, out, "audit=false"))
    until(lambda: rounds_of(out) >= 1, first)
    os.kill(server_of(open_link), signal.SIGKILL)
    first.kill()
    assert not (out / "summary.json").exists()
    done = open_link.run(APP, config(start, out, "audit=false resume=true"))
    assert (out / "summary.json").is_file(), done.stdout
    assert_as_expected(Run.open(out), expected)


def server_of(running: Deployment) -> int:
    """The process of the ServerApp: a child of the SuperExec that belongs to this deployment."""
    superexec = running.group_of("superexec")
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    found = [(int(pid), int(parent), state) for pid, parent, state in map(str.split, listing.splitlines())]
    living = [pid for pid, parent, state in found if parent == superexec and not state.startswith("Z")]
    assert len(living) == 1, listing
    return living[0]


def test_a_node_that_is_killed_is_named_and_the_run_goes_on(open_link: Deployment, start: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = open_link.start_run(
        APP, config(start, out, "audit=false", options="rounds=3 recovery_rounds=1 lr=0.3", timeout=40.0)
    )
    until(lambda: rounds_of(out) >= 1, process)
    open_link.kill_node("2")
    until(lambda: rounds_of(out) >= 2, process)
    open_link.start_node("2")  # back, as another node
    output, _ = process.communicate(timeout=1500)
    assert (out / "summary.json").is_file(), output
    missing = [set(r["missing"]) for r in Run.open(out).rounds()]
    assert missing[0] == set()
    assert missing[1] == {"2"}
    assert missing[-1] == set()
    assert Run.open(out).summary["status"] == "complete"
    assert "2 is missing" in output


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_no_process_is_left_behind(warm: bool, tmp_path: Path) -> None:
    groups: set[int] = set()

    def fail() -> None:
        with deployment(tmp_path, ("0",), tls=False, warm=warm) as running:
            groups.update(map(running.group_of, ("superlink", "superexec", "node-0")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(groups) == 3
    listing = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    living = {int(group) for group, state in map(str.split, listing.splitlines()) if not state.startswith("Z")}
    assert not groups & living
