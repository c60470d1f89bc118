"""How much faster is a round of unequal clients when the largest begin?

    python benchmarks/order.py [--tiny] [--out benchmarks/order.json]

The same engine with and without the order, in turns, on clients as unequal as those of experiments/lasting-*.toml.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cases
from common import RESULTS, interleaved, ratios, seconds, spread, write
from fupareto import parameters
from fupareto.federation import Local, SimulatedFederation
from fupareto.federation.questions import Question
from fupareto.tasks.losses import Loss

SIZES = {  # training samples of ten clients, Dirichlet 0.5
    "lenet5": (607, 486, 708, 319, 578, 525, 656, 320, 358, 581),
    "cnn": (195, 214, 76, 278, 258, 245, 252, 166, 186, 210),
}
BATCH = 20


class InOrder(SimulatedFederation):
    """Clients begin in the order in which they are asked."""

    def _rank(self, asked: tuple[str, Question]) -> int:
        return 0


def measure(model: str, sizes: Sequence[int], repeats: int) -> dict[str, Any]:
    """Time rounds of FedAvg with both engines."""
    shape = next(case.shape for case in cases.CASES if case.model == model)
    clients = [cases.client(shape, size, i) for i, size in enumerate(sizes)]
    data = {str(i): {"train": c, "test": (c[0][:1], c[1][:1])} for i, c in enumerate(clients)}
    module = cases.ours(model)
    w, local = parameters.read(module), Local(0.01, epochs=1, batch_size=BATCH)

    def timed(federation: SimulatedFederation) -> float:
        return seconds(lambda: federation.train_mean(w, federation.ids, Loss("ce"), local))

    ours, other = SimulatedFederation(module, data), InOrder(module, data)
    timed(ours), timed(other)
    times = interleaved({"largest_first": lambda: timed(ours), "in_order": lambda: timed(other)}, repeats)
    return {
        "model": model,
        "sizes": list(sizes),
        "seconds": {name: spread(t) for name, t in times.items()},
        "times_as_fast": ratios(times["in_order"], times["largest_first"]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "order.json")
    chosen = parser.parse_args(arguments)
    found = [measure(m, s[:2] if chosen.tiny else s, 1 if chosen.tiny else 9) for m, s in SIZES.items()]
    write(chosen.out, {"models": found})


if __name__ == "__main__":
    main()
