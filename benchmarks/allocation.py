"""How much faster is a FedAvg round when the process keeps the memory that it has freed, as the command line does?

    python benchmarks/allocation.py [--tiny] [--out benchmarks/allocation.json]

The same rounds with and without ``fupareto.allocation``, in turns, each in a fresh process.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cases
from common import RESULTS, interleaved, isolated, memory_of, ratios, seconds, spread, write
from fupareto import parameters
from fupareto.allocation import keep_freed_memory
from fupareto.federation import Local, SimulatedFederation
from fupareto.tasks.losses import Loss

CLIENTS, SAMPLES = 4, {"lenet5": 2000, "cnn": 400}
BATCHES = (20, 200)


def rounds(model: str, batch: int, samples: int, keep: bool) -> tuple[float, int]:
    """Return the seconds of a round after a first one, and the peak of the process in KiB."""
    if keep and not keep_freed_memory():
        raise RuntimeError("needs glibc, and no MALLOC_ variable in the environment")
    shape = next(case.shape for case in cases.CASES if case.model == model)
    clients = [cases.client(shape, samples, i) for i in range(CLIENTS)]
    data = {str(i): {"train": c, "test": (c[0][:1], c[1][:1])} for i, c in enumerate(clients)}
    module = cases.ours(model)
    w, local = parameters.read(module), Local(0.01, epochs=1, batch_size=batch)
    federation = SimulatedFederation(module, data)

    def work() -> object:
        return federation.train_mean(w, federation.ids, Loss("ce"), local)

    with federation.session():
        work()
        return seconds(work), memory_of("VmHWM")


def measure(model: str, batch: int, samples: int, repeats: int) -> dict[str, Any]:
    """Time rounds in both kinds of process."""
    peaks: dict[str, list[float]] = {"kept": [], "returned": []}

    def turn(name: str) -> float:
        took, peak = isolated(rounds, model, batch, samples, name == "kept", limit=600)
        peaks[name].append(peak / 1024)
        return float(took)

    times = interleaved({name: lambda name=name: turn(name) for name in peaks}, repeats)  # type: ignore[misc]
    return {
        "model": model,
        "batch": batch,
        "seconds": {name: spread(t) for name, t in times.items()},
        "peak_mib": {name: spread(p) for name, p in peaks.items()},
        "times_as_fast": ratios(times["returned"], times["kept"]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "allocation.json")
    chosen = parser.parse_args(arguments)
    found = [
        measure(model, batch, 20 if chosen.tiny else samples, 1 if chosen.tiny else 7)
        for model, samples in (list(SAMPLES.items())[:1] if chosen.tiny else SAMPLES.items())
        for batch in (BATCHES[:1] if chosen.tiny else BATCHES)
    ]
    write(chosen.out, {"models": found})


if __name__ == "__main__":
    main()
