"""The memory budget: what a run is going to hold over the data, and what there is, before the first round."""

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
SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # of participation, of which the largest that would fit is advised
CGROUPS = {  # by version: where, the limit, what is used, and how much of that is a cache of files
    2: ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    1: ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def need(method: Method, federation: Federation, forget: int, retained: int) -> int:
    """Return the bytes that a run takes at its peak, over the data: vectors, the Gram matrix, and clients at work.

    Vectors are float32, products float64, by chunks of all rows. What is recorded of a training is on disk.
    """
    rows, n = method.rows(forget, retained), federation.layout.size
    products = 12 * rows * min(n, chunk_size(rows)) + 80 * rows**2  # a chunk and its copy; ten matrices (rows, rows)
    asked = forget + sample_size(retained, getattr(method, "participation", 1.0))
    return FLOAT * n * (OWN + rows) + products + federation.memory(asked, method.local_batch)


def check(method: Method, federation: Federation, forget: int, retained: int) -> None:
    """Refuse a run that does not fit, saying what would."""
    free, wanted = available(federation.device), need(method, federation, forget, retained)
    if free is None or wanted <= free:
        return
    held = method.rows(forget, retained)
    each = FLOAT * federation.layout.size
    raise UserError(
        f"{method.name} with {forget + retained} clients needs about {_words(wanted)} of memory over the data: "
        f"{_words(each * (held + OWN))} for {held + OWN} models and gradients of {_words(each)}, the rest for "
        f"clients at work. {_words(free)} are free. {_advice(method, federation, forget, retained, free)}"
    )


def available(device: torch.device, root: Path = Path("/")) -> int | None:
    """Return the bytes that are free on a device; on the host, within the limits of its control groups.

    None where nobody says: then nothing is checked.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    return min((*_meminfo(root), *_limits(root)), default=None) or _pages()


def _meminfo(root: Path) -> Iterator[int]:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield 1024 * int(line.split()[1])


def _limits(root: Path) -> Iterator[int]:
    """Yield what is left under every limit that this process is under, its group's and those above."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        where, limit, used, cached = CGROUPS[1 if controllers else 2]
        group = Path(path.strip("/"))
        for place in (root / where / part for part in (group, *group.parents)):  # a container may see the last alone
            most, taken = _read(place / limit).strip(), _read(place / used).strip()
            if most.isdigit() and taken.isdigit():
                stat = dict(line.split() for line in _read(place / "memory.stat").splitlines())
                yield max(int(most) - int(taken) + int(stat.get(cached, 0)), 1)


def _pages() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _advice(method: Any, federation: Federation, forget: int, retained: int, free: int) -> str:
    rows, ways = method.rows(forget, retained), []
    if rows and hasattr(method, "participation"):
        fitting = (
            f", such as {share}, which would fit"
            for share in SHARES
            if need(replace(method, participation=share), federation, forget, retained) <= free
        )
        ways.append(f"set participation below {method.participation:g}{next(fitting, '')}")
    ways.append("take a smaller model, fewer clients or fewer workers")
    if rows >= retained:
        ways.append("use a method that holds no client's model, such as retrain or mode")
    return f"{'; or '.join(ways).capitalize()}."


def _words(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
