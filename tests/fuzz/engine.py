"""Running cases: each in a process forked from this one, which has imported everything, or started as a user would."""

import contextlib
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NoReturn

from fuzz.cases import KINDS, Case
from fuzz.world import FORGETTING, World, make

MEMORY = 12 * 2**30  # bytes of address space of a command
SECONDS = 60.0  # of computing, after which a command counts as one that does not end
PATIENCE = 300.0  # seconds on the clock, on a busy machine
STARTED = 100  # every so many cases, a command is started as a user would
SCRIPT = Path(sys.executable).with_name("fupareto")


@dataclass
class Tally:
    """Counts of a fuzzing run, and its failures."""

    cases: Counter[str] = field(default_factory=Counter)
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    loose: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, kind: str, code: int, loose: str) -> None:
        """Count a case."""
        self.cases[kind] += 1
        self.codes[kind, code] += 1
        if loose and code == 0:
            self.loose[loose] += 1

    def lines(self) -> Iterator[str]:
        """Yield the counts as a table."""
        codes = sorted({code for _, code in self.codes})
        yield f"{'kind':20}{'cases':>8}" + "".join(f"{f'exit {code}':>10}" for code in codes)
        for kind, count in [*self.cases.items(), ("all", self.cases.total())]:
            each = (sum(n for (k, c), n in self.codes.items() if c == code and kind in (k, "all")) for code in codes)
            yield f"{kind:20}{count:>8}" + "".join(f"{n:>10}" for n in each)
        for what, count in self.loose.items():
            yield f"NOT CHECKED: {count} accepted cases ({what})"
        yield f"{len(self.failures)} failures"


@dataclass(frozen=True)
class Running:
    """A case that is under way."""

    number: int
    kind: str
    case: Case
    place: Path
    began: float
    before: dict[str, bytes]


def prepare() -> None:
    """Import what commands need, so that forked processes need not."""

    import fupareto.bench.run
    import fupareto.cli
    import fupareto.evidence
    import fupareto.experiment
    import fupareto.report  # noqa: F401


def kind_of(seed: int, number: int) -> str:
    """Return the kind of a case."""
    names = list(KINDS)
    return Random(f"{seed}/{number}/kind").choices(names, [KINDS[name][0] for name in names])[0]


class Engine:
    """Runs the cases of a seed in a world.

    Args:
        path: Directory for the world and the cases.
        seed: The seed.
        jobs: Cases that run at the same time.
        keep: Whether the files of cases are kept.
    """

    def __init__(self, path: Path, seed: int, jobs: int = 1, keep: bool = False) -> None:
        self.path, self.seed, self.jobs, self.keep = path, seed, jobs, keep
        (path / "world").mkdir()
        self._imported: set[str] = set()
        self.world: World = make(path / "world", self._made)
        for name in sorted(self._imported - sys.modules.keys()):
            with contextlib.suppress(Exception):  # a module that cannot be imported alone is imported by its command
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # so that forked processes do not copy what they never change
        self.tally = Tally()
        self._running: dict[int, Running] = {}

    def run(self, numbers: range, until: float = float("inf")) -> Tally:
        """Run cases; none is started after ``until`` on the monotonic clock."""
        for number in numbers:
            if time.monotonic() > until:
                break
            while len(self._running) >= self.jobs:
                self._wait()
            self._start(number)
        while self._running:
            self._wait()
        return self.tally

    def _start(self, number: int) -> None:
        kind = kind_of(self.seed, number)
        place = self.path / str(number)
        place.mkdir()
        case = KINDS[kind][1](self.world, place, Random(f"{self.seed}/{number}"))
        before = {str(p): p.read_bytes() for kept in case.kept for p in sorted(kept.rglob("*")) if p.is_file()}
        as_user = number % STARTED == 0 and not any("\0" in arg for arg in case.args)
        pid = _spawn(case, place) if as_user else _fork(case, place)
        self._running[pid] = Running(number, kind, case, place, time.monotonic(), before)

    def _wait(self) -> None:
        """Wait until a case has ended, and judge it."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in self._running:
                return self._judge(self._running.pop(pid), os.waitstatus_to_exitcode(status))
            for late in [p for p, r in self._running.items() if time.monotonic() - r.began > PATIENCE]:
                os.killpg(late, signal.SIGKILL)
            time.sleep(0.001)

    def _judge(self, run: Running, code: int) -> None:
        said = (run.place / ".err").read_text(errors="replace")
        wrong = self._wrong(run, code, said)
        self.tally.add(run.kind, code, run.case.loose)
        if wrong:
            args = " ".join(run.case.args)
            text = f"case {run.number} ({run.kind}; {run.case.note}): {wrong}\n  {args:.300}\n  {said.strip()[-1500:]}"
            self.tally.failures.append(text)
            print(text, flush=True)
        if not self.keep:
            shutil.rmtree(run.place)

    def _wrong(self, run: Running, code: int, said: str) -> str:
        if code < 0:
            return f"killed by signal {-code}: it does not end, or takes too much memory"
        if code not in run.case.codes or "Traceback" in said:
            return f"exit code {code}" + (" and a traceback" if "Traceback" in said else "")
        if code == 2 and not said.strip():
            return "refused without a word"
        if code == 2 and any(not Path(p).is_file() or Path(p).read_bytes() != data for p, data in run.before.items()):
            return "refused, but files were changed"
        try:
            return run.case.accepted() if code == 0 else ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"accepted, but what was stored cannot be compared: {error!r}"

    def _made(self, command: list[str]) -> tuple[int, str]:
        place = Path(tempfile.mkdtemp(dir=self.path))
        pid = _fork(Case(command, drawn=FORGETTING[0] in command), place, Path.cwd())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._imported.update((place / ".modules").read_text().split())
        return code, (place / ".err").read_text()


def _spawn(case: Case, place: Path) -> int:
    """Start a command as a user would."""
    with (place / ".out").open("wb") as out, (place / ".err").open("wb") as err:
        started = subprocess.Popen(
            [SCRIPT, *case.args], cwd=place, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
    started.returncode = 0  # waited for by process id
    return started.pid


def _fork(case: Case, place: Path, where: Path | None = None) -> int:
    pid = os.fork()
    if pid == 0:
        _child(case, place, where or place)
    return pid


def _child(case: Case, place: Path, where: Path) -> NoReturn:
    """Run a command in a forked process, and end it."""
    code = 1
    try:
        os.setsid()
        _redirect(place)
        os.chdir(where)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS) + 5))
        sys.argv = ["fupareto", *case.args]
        from fupareto.cli import common, main

        if not case.drawn:
            common.report = lambda run: run.save_report("not drawn")
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        if where != place:
            (place / ".modules").write_text(" ".join(sys.modules))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _redirect(place: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)


def told(tally: Tally) -> str:
    """Return the counts as JSON."""
    return json.dumps({"cases": tally.cases.total(), "failures": len(tally.failures), "loose": dict(tally.loose)})
