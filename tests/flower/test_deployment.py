"""Flower for real: a SuperLink, four SuperNodes and `flwr run` as processes, killed in the middle, with TLS and keys.

The app is the example's, so what the documentation shows is what runs here.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

import fupareto
from fupareto import FedAvg, FUPareto
from fupareto.federation import Federation
from fupareto.runs import Run

from .example import APP, data, model
from .processes import Deployment, deployment

pytestmark = pytest.mark.deployment
CLIENTS = ("0", "1", "2", "7")
METHOD = FUPareto(rounds=2, recovery_rounds=1, lr=0.3)
OPTIONS = "rounds=2 recovery_rounds=1 lr=0.3"


@pytest.fixture(scope="module")
def federation() -> Federation:
    held = {i: data(SimpleNamespace(node_config={"client-id": i})) for i in CLIENTS}
    return fupareto.simulate(model(), held)


@pytest.fixture(scope="module")
def start(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model that knows client 7."""
    trained = fupareto.train(federation, model(), FedAvg(rounds=20, lr=0.3, batch_size=10), measure_every=0)
    path = tmp_path_factory.mktemp("start") / "w0.safetensors"
    safetensors.torch.save_file(trained.model("initial"), path)
    return path


@pytest.fixture(scope="module")
def expected(federation: Federation, start: Path) -> fupareto.Result:
    """What the simulated engine makes of the request."""
    w0 = federation.layout.flat(safetensors.torch.load_file(start))
    return fupareto.unlearn(federation, w0, ["7"], METHOD, measure_every=0)


@pytest.fixture(scope="module")
def open_link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("open"), CLIENTS, tls=False) as running:
        yield running


@pytest.fixture(scope="module")
def secure_link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("secure"), CLIENTS, tls=True) as running:
        yield running


def config(start: Path, out: Path, *more: str, options: str = OPTIONS, timeout: float = 300.0) -> str:
    words = [
        'forget="7"',
        f'model="{start}"',
        f'out="{out}"',
        f'options="{options}"',
        f"clients=4 timeout={timeout} measure-every=0",
        *more,
    ]
    return " ".join(words)


def assert_as_expected(run: Run, expected: fupareto.Result) -> None:
    for stage in ("initial", "unlearned", "recovered"):
        mine, theirs = run.load_model(stage), expected.model(stage)
        assert mine is not None
        for name, tensor in theirs.items():
            assert torch.allclose(mine[name], tensor, rtol=0, atol=1e-5), (stage, name)
    keys = ("round", "stage", "phase", "step", "missing")
    mine_, theirs_ = ([{k: r[k] for k in keys} for r in rounds] for rounds in (run.rounds(), expected.rounds))
    assert mine_ == theirs_
    assert run.summary["status"] == "complete"
    assert (run.path / "report.html").is_file()


def until(found: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 400.0) -> None:
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
    first = open_link.start_run(APP, config(start, out))
    until(lambda: rounds_of(out) >= 1, first)
    os.kill(server_of(open_link), signal.SIGKILL)
    first.kill()
    assert not (out / "summary.json").exists()
    done = open_link.run(APP, config(start, out, "resume=true"))
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
    process = open_link.start_run(APP, config(start, out, options="rounds=3 recovery_rounds=1 lr=0.3", timeout=40.0))
    until(lambda: rounds_of(out) >= 1, process)
    open_link.kill_node("2")
    until(lambda: rounds_of(out) >= 2, process)
    open_link.start_node("2")  # back, as another node
    output, _ = process.communicate(timeout=600)
    assert (out / "summary.json").is_file(), output
    missing = [set(r["missing"]) for r in Run.open(out).rounds()]
    assert missing[0] == set()
    assert missing[1] == {"2"}
    assert missing[-1] == set()
    assert Run.open(out).summary["status"] == "complete"
    assert "2 is missing" in output


def test_the_same_with_tls_and_keys(
    secure_link: Deployment, start: Path, expected: fupareto.Result, tmp_path: Path
) -> None:
    secure_link.make_keys("stranger")
    with pytest.raises(RuntimeError, match="Failed to activate SuperNode"):
        secure_link.start_node("stranger")
    done = secure_link.run(APP, config(start, tmp_path / "run"))
    assert secure_link.status() == "finished:completed", done.stdout
    assert_as_expected(Run.open(tmp_path / "run"), expected)


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    groups: set[int] = set()

    def fail() -> None:
        with deployment(tmp_path, ("0",), tls=False) as running:
            groups.update(map(running.group_of, ("superlink", "superexec", "node-0")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(groups) == 3
    listing = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    living = {int(group) for group, state in map(str.split, listing.splitlines()) if not state.startswith("Z")}
    assert not groups & living
