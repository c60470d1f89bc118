"""Memory check before the first round: what a run needs in addition to the data, and what is available."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fupareto.errors import UserError
from fupareto.federation.collected import FLOAT
from fupareto.federation.contract import Federation
from fupareto.methods.base import Method, sample_size
from fupareto.pareto.gram import chunk_size

OWN = 8  # vectors of any method: w, the next one, a direction, a float64 sum, and copies while they are saved
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # values of participation; the largest that fits is suggested
CGROUPS = {  # version -> directory, file of the limit, file of the usage, key of reclaimable file cache in memory.stat
    2: ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    1: ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def need(method: Method, federation: Federation, forget: int, retained: int) -> int:
    """Return the peak memory of a run in bytes, without the data.

    It consists of the float32 vectors of models and gradients, the chunks and float64 products of the Gram matrix, and
    the memory of clients that compute. The history of a training is on disk and not counted.

    Args:
        method: The method.
        federation: The clients.
        forget: Number of forget clients.
        retained: Number of retained clients.
    """
    rows, n = method.rows(forget, retained), federation.layout.size
    products = 12 * rows * min(n, chunk_size(rows)) + 80 * rows**2  # a chunk and its copy; ten matrices (rows, rows)
    asked = forget + sample_size(retained, getattr(method, "participation", 1.0))
    return FLOAT * n * (OWN + rows) + products + federation.memory(asked, method.local_batch)


def check(method: Method, federation: Federation, forget: int, retained: int) -> None:
    """Refuse a run that needs more memory than is available; the message suggests settings that fit."""
    free, wanted = available(federation.device), need(method, federation, forget, retained)
    if free is None or wanted <= free:
        return
    held = method.rows(forget, retained)
    each = FLOAT * federation.layout.size
    raise UserError(
        f"not enough memory: {method.name} with {forget + retained} clients needs about {_words(wanted)} in addition "
        f"to the data: {_words(each * (held + OWN))} for {held + OWN} models and gradients of {_words(each)}, the rest "
        f"for the computations of clients. {_words(free)} are available. "
        f"{_advice(method, federation, forget, retained, free)}"
    )


def available(device: torch.device, root: Path = Path("/")) -> int | None:
    """Return the available memory of a device in bytes; on the host, within the limits of its control groups.

    None where it is not known; then nothing is checked.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    return min((*_meminfo(root), *_limits(root)), default=None) or _pages()


def _meminfo(root: Path) -> Iterator[int]:
    """Yield the available memory that Linux reports."""
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield 1024 * int(line.split()[1])


def _limits(root: Path) -> Iterator[int]:
    """Yield what is left of the memory limit of this process's control group, and of every group above it."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        where, limit, used, cached = CGROUPS[1 if controllers else 2]
        group = Path(path.strip("/"))
        for place in (root / where / part for part in (group, *group.parents)):  # a container may see only the root
            most, taken = _read(place / limit).strip(), _read(place / used).strip()
            if most.isdigit() and taken.isdigit():
                stat = dict(line.split() for line in _read(place / "memory.stat").splitlines())
                yield max(int(most) - int(taken) + int(stat.get(cached, 0)), 1)


def _pages() -> int | None:
    """Return the free physical memory by sysconf, where /proc is missing."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _read(path: Path) -> str:
    """Return the content of a file; empty where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _advice(method: Any, federation: Federation, forget: int, retained: int, free: int) -> str:
    """Return a sentence on how to reduce the memory."""
    rows, ways = method.rows(forget, retained), []
    if rows and hasattr(method, "participation"):
        fitting = (
            f", such as {share}, which would fit"
            for share in SHARES
            if need(replace(method, participation=share), federation, forget, retained) <= free
        )
        ways.append(f"set participation below {method.participation:g}{next(fitting, '')}")
    ways.append("use a smaller model, fewer clients or fewer workers")
    if rows >= retained:
        ways.append("use a method that does not hold the models of all clients, such as retrain or mode")
    return f"{'; or '.join(ways).capitalize()}."


def _words(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
