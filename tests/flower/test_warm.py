"""The warm process: Flower's own command, forked instead of started, with everything that belongs to it."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fupareto import UserError
from fupareto.flower.warm import owner

from .processes import COMMANDS, WARM

ENVIRONMENT = {**os.environ, "PATH": f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"}


def run(script: str, *, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    words = [*WARM, "/bin/sh", "-c", textwrap.dedent(script)]
    return subprocess.run(words, env=environment or ENVIRONMENT, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def scripted() -> subprocess.CompletedProcess[str]:
    """One warm process for all questions: it takes seconds to start."""
    return run(
        """
        place=$(dirname "$(dirname "$(command -v flwr-clientapp)")")
        stat -c '%a socket' "$place/socket"; stat -c '%a place' "$place"
        flwr-clientapp --help | head -1
        flwr-clientapp --no-such-option 2>/dev/null; echo "code $?"
        echo "before $(date +%s%N)"
        for i in 1 2 3 4 5; do flwr-clientapp --help > /dev/null; done
        echo "after $(date +%s%N)"
        kill $(pgrep -P "$PPID" -f '[f]upareto.flower.warm.server'); sleep 0.3
        flwr-clientapp --help | head -1; echo "code $?"
        exit 7
        """
    )


def test_arguments_streams_and_exit_codes_pass_through(scripted: subprocess.CompletedProcess[str]) -> None:
    lines = scripted.stdout.splitlines()
    assert lines[2].startswith("usage: flwr-clientapp")
    assert lines[3] == "code 2"
    assert scripted.returncode == 7, scripted


def test_nobody_else_can_open_the_socket(scripted: subprocess.CompletedProcess[str]) -> None:
    assert scripted.stdout.splitlines()[:2] == ["600 socket", "700 place"]


def test_a_command_takes_a_fraction_of_a_second(scripted: subprocess.CompletedProcess[str]) -> None:
    times = {line.split()[0]: int(line.split()[1]) for line in scripted.stdout.splitlines() if line[:1] in "ab"}
    start = time.monotonic()
    subprocess.run([COMMANDS / "flwr-clientapp", "--help"], capture_output=True, check=True)
    cold = time.monotonic() - start
    assert (times["after"] - times["before"]) / 5e9 < cold  # without an app, which would import torch as well


def test_without_the_warm_process_the_ordinary_command_runs(scripted: subprocess.CompletedProcess[str]) -> None:
    lines = scripted.stdout.splitlines()
    assert lines[-2].startswith("usage: flwr-clientapp")
    assert lines[-1] == "code 0"


def test_nothing_is_left_behind(scripted: subprocess.CompletedProcess[str], tmp_path: Path) -> None:
    process = subprocess.Popen([*WARM, "/bin/sleep", "60"], env={**ENVIRONMENT, "TMPDIR": str(tmp_path)})
    end = time.monotonic() + 60
    while not list(tmp_path.glob("fupareto-warm-*/bin/flwr-clientapp")) and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_another_environment_and_changed_files_start_cold(tmp_path: Path) -> None:
    """Each case is visible by who runs the command: the warm process refuses, and the ordinary one says so."""
    package = tmp_path / "lib" / "torch_like.py"
    package.parent.mkdir()
    package.write_text("VALUE = 1\n")
    ordinary = tmp_path / "bin" / "flwr-clientapp"
    ordinary.parent.mkdir()
    ordinary.write_text("#!/bin/sh\necho cold\n")
    ordinary.chmod(0o755)
    environment = {
        **ENVIRONMENT,
        "PATH": f"{ordinary.parent}{os.pathsep}{ENVIRONMENT['PATH']}",
        "PYTHONPATH": f"{package.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "PYTHONSTARTUP": "",
    }
    code = f"import sys; sys.path.insert(0, {str(package.parent)!r}); import torch_like"
    site = tmp_path / "lib" / "sitecustomize.py"
    site.write_text(code + "\n")
    done = run(
        f"""
        flwr-clientapp --help | head -1
        OMP_NUM_THREADS=77 flwr-clientapp
        echo 'VALUE = 2' > {package}
        flwr-clientapp
        sleep 1
        flwr-clientapp --help | head -1
        """,
        environment=environment,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("usage:"), done
    assert lines[1:3] == ["cold", "cold"]
    assert lines[3].startswith("usage:")


def test_mistakes_are_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", ENVIRONMENT["PATH"])
    with pytest.raises(UserError, match="'no-such-command' was not found"):
        owner.run(["no-such-command"])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="flwr-clientapp is not on the PATH"):
        owner.run([sys.executable])
    done = subprocess.run(WARM[:-1], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "name the command to run" in done.stderr
