"""How does a peer that needs a process of its own take its turn? It runs one round whenever it is told to.

The peer's script calls :class:`Turns` between its rounds and waits there until our process says go. Workers of a peer
may wait busily (pfl-research's do, for each other), so its processes are halted when it is not their turn: rounds take
turns on an otherwise idle machine, however long a peer takes to start.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import safetensors.torch
import torch
from torch import Tensor

from cases import Case

MARK = "round done: "


class Turns:
    """The peer's side: time the rounds, wait between them, hand over the weights after the first."""

    def __init__(self, rounds: int, weights: Path) -> None:
        self.rounds, self.weights = rounds, weights
        self.done = 0
        self.start = 0.0

    def begin(self) -> None:
        """Wait until it is our turn for the first time."""
        self._wait()

    def between(self, w: Tensor) -> None:
        """Report the round that has ended, and wait for the next one's turn."""
        elapsed = time.perf_counter() - self.start
        self.done += 1
        if self.done == 1:
            safetensors.torch.save_file({"w": w}, self.weights)
        print(f"{MARK}{elapsed}", flush=True)
        if self.done < self.rounds:
            self._wait()

    def _wait(self) -> None:
        if not sys.stdin.readline():
            raise RuntimeError("nobody wants more rounds")
        self.start = time.perf_counter()


class Peer:
    """Our side: a peer's process, which does a round per call: one to warm up, then the case's repeats."""

    def __init__(self, command: list[str], case: Case, directory: Path) -> None:
        directory.mkdir()
        self.weights, self.log = directory / "weights.safetensors", directory / "log"
        arguments = [json.dumps(case.plain), str(self.weights)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def round(self) -> float:
        """Let the peer do a round and return the seconds that it says it took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._signal(signal.SIGCONT)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(MARK):
                self._signal(signal.SIGSTOP)
                return float(line.removeprefix(MARK))
        raise RuntimeError(f"the peer ended:\n{self.log.read_text(errors='replace')[-4000:]}")

    def result(self) -> Tensor:
        """Return the weights after the first round."""
        return safetensors.torch.load_file(self.weights)["w"]

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let it end in order, which it does after its last round."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60 if kind is None else 5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _signal(self, number: int) -> None:
        """Send a signal to the process and to all that it has started."""
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        parents = {int(pid): int(parent) for pid, parent in map(str.split, listing.splitlines())}
        family = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def told() -> tuple[Case, Turns]:
    """Return what the command line of a peer's process says."""
    plain = json.loads(sys.argv[1])
    case = Case(**{**plain, "shape": tuple(plain["shape"])})
    return case, Turns(case.repeats + 1, Path(sys.argv[2]))


def flat(state: dict[str, Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in state.values()])
