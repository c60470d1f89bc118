"""What the benchmarks share: interleaved repeats, ratios with their spread, fresh processes, and where results go.

Times on a shared machine drift by tens of percent within minutes, so contenders take turns within one run and what is
reported is the ratio of neighbours, with its smallest and largest value, rather than seconds of different days.
"""

import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent
PACKAGES = ("fupareto", "torch", "numpy", "scipy")
Spread = dict[str, float]


def spread(values: Sequence[float]) -> Spread:
    """Return median, smallest and largest, to four digits."""
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def ratios(over: Sequence[float], under: Sequence[float]) -> Spread:
    """Return the spread of the quotients of neighbours: what ran at the same time is compared."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(contenders: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Let the contenders take turns; each returns the seconds that it took."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(repeats):
        for name, measure in contenders.items():
            times[name].append(measure())
        print(f"  repeat {number + 1}: " + ", ".join(f"{name} {t[-1]:.3g} s" for name, t in times.items()), flush=True)
    return times


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the least-squares line through the points in logarithms: growth as size^slope."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class TimedOut(Exception):
    """Work in a process of its own did not end in time."""


def isolated(work: Callable[..., Any], *arguments: Any, limit: float) -> Any:
    """Return ``work(*arguments)`` from a fresh process, or raise TimedOut, or RuntimeError if it failed or crashed.

    A fresh process has a peak memory of its own, and solvers that hang or crash do no harm. The process forks from a
    server that has imported torch and nothing else, which is what makes dozens of them affordable.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "scipy.optimize", "fupareto.federation", "fupareto.methods"])
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(theirs, work, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        if not mine.poll(limit):
            raise TimedOut(f"not done after {limit:g} s")
        fine, result = mine.recv()
    except EOFError:
        raise RuntimeError("the process crashed") from None
    finally:
        process.kill()
        process.join()
        mine.close()
    if not fine:
        raise RuntimeError(result)
    return result


def _report(connection: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        connection.send((True, work(*arguments)))
    except Exception as error:  # whatever it is, the other side has to know
        connection.send((False, f"{type(error).__name__}: {error}"))


def memory_of(name: str) -> int:
    """Return a field of this process's status in KiB: VmRSS is what it holds, VmHWM the most that it held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))


def reset_peak() -> int:
    """Forget the peak so far, and return the memory in use."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_of("VmRSS")


def version(package: str) -> str | None:
    """Return a package's version, or None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def skip(contender: str, why: str) -> str:
    """Say loudly that a contender is absent; a table that silently lacks one looks like a victory."""
    print(f"\n*** SKIPPED: {contender}: {why} ***\n", flush=True)
    return why


def write(path: Path, result: Mapping[str, Any], packages: Sequence[str] = ()) -> None:
    """Write a result with what it was measured on."""
    found = {name: version(name) for name in (*PACKAGES, *packages)}
    machine = {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before_and_after": [round(load, 1) for load in (_LOAD, os.getloadavg()[0])],
        "python": platform.python_version(),
        "versions": {name: v for name, v in found.items() if v is not None},
    }
    path.write_text(json.dumps({"machine": machine, **result}, indent=1) + "\n")
    print(f"written: {path}", flush=True)


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


_LOAD = os.getloadavg()[0]
