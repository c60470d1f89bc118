"""The command line as tests use it: the installed script, and the same command in a process forked ready to run."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

SCRIPT = Path(sys.executable).with_name("fupareto")
EXPERIMENT = """
name = "small"

[data]
samples = 400

[partition]
kind = "iid"
clients = 5

[train]
rounds = 6

[request]
clients = 2

[unlearn]
options = { renewal = 0, rates = "fall", lr = 0.05, rounds = 6, recovery_rounds = 4 }
"""

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["fupareto.experiment", "fupareto.report", "sklearn.datasets", "matplotlib.figure"])


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


def fupareto(*args: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> Ended:
    """Run the installed script to its end."""
    command = [str(SCRIPT), *map(str, args)]
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=300
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class Process:
    """A command in a process of its own, forked from one that has imported torch already: it starts at once.

    Only the demo draws its report, which takes longer than these runs; the others take ``drawing`` seconds over it.
    """

    def __init__(self, *args: object, cwd: Path, drawing: float = 1.0) -> None:
        self.log = cwd / f"log-{time.monotonic_ns()}"
        for suffix in (".out", ".err"):
            self.log.with_suffix(suffix).touch()
        self.process: ForkServerProcess = _forks.Process(
            target=_run, args=([*map(str, args)], str(cwd), str(self.log), drawing)
        )
        self.process.start()

    def kill_when(self, happened: Callable[[], bool]) -> None:
        """Send SIGKILL as soon as something has happened, and see that it came in time."""
        deadline = time.monotonic() + 120
        while not happened() and self.process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        self.process.kill()
        assert self.end().code == -9, "the command was over before it could be killed"

    def end(self) -> Ended:
        """Wait for the end."""
        self.process.join(300)
        code = self.process.exitcode
        assert code is not None
        return Ended(code, self.log.with_suffix(".out").read_text(), self.log.with_suffix(".err").read_text())


def forked(*args: object, cwd: Path) -> Ended:
    """Run a command to its end in a forked process."""
    return Process(*args, cwd=cwd, drawing=0.0).end()


def _run(args: list[str], cwd: str, log: str, drawing: float) -> None:
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(log + suffix, os.O_WRONLY), number)
    os.chdir(cwd)
    sys.argv = ["fupareto", *args]
    from fupareto.cli import common, main

    if args[0] != "demo":
        common.report = lambda run: time.sleep(drawing) or run.save_report("not drawn")  # type: ignore[func-returns-value]
    main()


def files(path: Path) -> dict[str, bytes]:
    """Return everything under a directory."""
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else b"" for p in sorted(path.rglob("*"))}
