"""How do time and memory of a round grow with clients, parameters and trial steps?

    python benchmarks/growth.py [--tiny] [--out benchmarks/growth.json]

Every point is measured in a fresh process: the seconds of a round (median of a few, after a first one) and the memory
that the first round adds at its peak to what the process held with the data in place. Exponents are slopes of
least-squares lines in logarithms, over all points and through the last two; where fixed costs matter, the latter is
closer to what larger sizes will do. A point that takes longer than the limit is recorded as such.
"""

import argparse
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from common import RESULTS, TimedOut, exponent, isolated, memory_of, reset_peak, seconds, spread, write
from fupareto import parameters
from fupareto.federation import Request, SimulatedFederation
from fupareto.federation.collected import Trial
from fupareto.methods import FedAvg, Method
from fupareto.methods.registry import find
from fupareto.tasks.losses import Loss

FEATURES, CLASSES = 64, 10
LIMIT = 240.0  # seconds for a point: building it, a first round and another
REPEATS = 3  # but one only where a round takes more than five seconds


@dataclass(frozen=True)
class Point:
    """One federation of small clients with an MLP, and what is asked of it."""

    work: str  # fedavg or fupareto: a round; search: the losses of all clients at some trial steps
    clients: int = 20
    samples: int = 100  # per client
    hidden: int = 64
    steps: int = 1

    def measure(self) -> dict[str, Any]:
        """Build the federation, then do the work; called in a fresh process."""
        torch.set_num_threads(1)
        hidden = nn.Linear(FEATURES, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.hidden), nn.ReLU()
        model = nn.Sequential(*hidden, nn.Linear(self.hidden, CLASSES))
        x, y = torch.rand(self.clients, self.samples, FEATURES), torch.randint(CLASSES, (self.clients, self.samples))
        data = {str(i): {"train": (x[i], y[i]), "test": (x[i, :1], y[i, :1])} for i in range(self.clients)}
        federation = SimulatedFederation(model, data, workers=os.cpu_count())
        work = self._work(federation, model)
        before = reset_peak()
        first = seconds(work)
        peak = memory_of("VmHWM") - before
        times = [seconds(work) for _ in range(REPEATS if first < 5.0 else 1)]
        return {
            "parameters": federation.layout.size,
            "seconds": spread(times),
            "first_seconds": round(first, 4),
            "peak_mib": round(max(peak, 0) / 1024, 1),
        }

    def _work(self, federation: SimulatedFederation, model: nn.Module) -> Callable[[], object]:
        w = parameters.read(model)
        if self.work == "search":
            trial = tuple(0.01 * 2.0**-k for k in range(self.steps))
            objectives = dict.fromkeys(federation.ids, Loss("ce"))
            return lambda: list(federation.losses(Trial(w, torch.ones_like(w), trial), objectives, {}))
        forget = Request(clients=federation.ids[: max(1, self.clients // 4)])
        method: Method = FedAvg() if self.work == "fedavg" else find("fupareto:guard")
        state = method.init(federation, w, None if self.work == "fedavg" else forget)
        return lambda: method.step(federation, replace(state, w=w.clone()))  # a model of which nothing is known


@functools.cache  # axes share points
def measured(point: Point) -> dict[str, Any]:
    """Measure a point in a fresh process, or say why that failed."""
    try:
        found: dict[str, Any] = isolated(point.measure, limit=LIMIT)
        return found
    except (TimedOut, RuntimeError) as error:
        return {"failure": str(error)}


@dataclass(frozen=True)
class Axis:
    """What grows, from which point on, and through which sizes; with a total, clients share that many samples."""

    name: str
    field: str
    sizes: tuple[int, ...]
    start: Point
    total: int | None = None  # of samples, over all clients

    def points(self) -> list[Point]:
        found = [Point(**{**asdict(self.start), self.field: size}) for size in self.sizes]
        if self.total is None:
            return found
        return [replace(point, samples=self.total // point.clients) for point in found]

    def measure(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for point in self.points():
            row = {**asdict(point), **measured(point)}
            rows.append(row)
            print(f"  {self.name}, {self.start.work}: {row}", flush=True)
        done = [row for row in rows if "failure" not in row]
        sizes = [row["parameters" if self.field == "hidden" else self.field] for row in done]
        times = [row["seconds"]["median"] for row in done]
        memory = [max(row["peak_mib"], 0.1) for row in done]
        return {
            "axis": self.name,
            "work": self.start.work,
            "points": rows,
            "exponent_of_seconds": _exponents(sizes, times),
            "exponent_of_memory": _exponents(sizes, memory),
        }


def _exponents(sizes: Sequence[float], values: Sequence[float]) -> dict[str, float] | None:
    if len(sizes) < 2:
        return None
    return {"all": round(exponent(sizes, values), 2), "last_two": round(exponent(sizes[-2:], values[-2:]), 2)}


def axes(tiny: bool) -> list[Axis]:
    clients = (2, 4) if tiny else (10, 100, 1000, 10_000)
    hidden = (8, 16) if tiny else (214, 684, 2200, 3120)  # about 6e4, 5e5, 5e6 and 1e7 parameters
    each = (2, 4) if tiny else (100, 1000, 10_000)
    steps = (1, 2) if tiny else (1, 2, 4, 8, 16)
    total = 40 if tiny else 100_000
    samples = 4 if tiny else 10
    rounds = ("fupareto",) if tiny else ("fedavg", "fupareto")
    return [
        *itertools.chain.from_iterable(
            (
                Axis(f"clients, {total:,} samples in all", "clients", clients, Point(work), total),
                Axis(f"clients, {samples} samples each", "clients", clients, Point(work, samples=samples)),
                Axis("samples of each client", "samples", each, Point(work, clients=2 if tiny else 100)),
                Axis("parameters", "hidden", hidden, Point(work)),
            )
            for work in rounds
        ),
        Axis("trial steps", "steps", steps, Point("search", samples=samples if tiny else 3000)),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "growth.json")
    chosen = parser.parse_args(arguments)
    found = [axis.measure() for axis in axes(chosen.tiny)]
    write(chosen.out, {"limit_seconds": LIMIT, "repeats": REPEATS, "axes": found})


if __name__ == "__main__":
    main()
