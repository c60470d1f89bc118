"""Does a run take no more memory than predicted, at the sizes that are promised?

    python benchmarks/memory.py [--tiny] [--out benchmarks/memory.json]

FUPareto with 50 clients and NFResNet-18, and with 1,000 clients and LeNet-5: two rounds of unlearning and one of
recovery, checkpoints included, each in a fresh process. The peak is over what the process held with data and model in
place. The clients that are asked last have a full batch, all others a few samples: activations are largest then when
all gradients but the last are there, and the rest of the work, which does not count here, takes seconds.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from common import RESULTS, isolated, memory_of, reset_peak, write
from fupareto import api, models, parameters
from fupareto.federation import SimulatedFederation
from fupareto.methods.registry import find
from fupareto.run import budget
from fupareto.tasks.samples import batch_size

FORGET, FEW, FULL = 5, 4, 6  # clients that leave; samples of most clients; clients with a full batch
LIMIT = 1800.0


@dataclass(frozen=True)
class Case:
    """A federation, and the memory in which it is promised to fit."""

    model: str
    shape: tuple[int, ...]
    classes: int
    clients: int
    promised_mib: int

    def measure(self) -> dict[str, Any]:
        """Run in this process, which should be a fresh one."""
        module = models.build(self.model, self.shape, self.classes, 0)
        one = torch.rand(1, *self.shape, generator=torch.Generator().manual_seed(0))
        full = batch_size(one)
        x, y = torch.rand(full, *self.shape), torch.arange(full) % self.classes
        sizes = [full if k >= self.clients - FULL else FEW for k in range(self.clients)]
        data = {str(k): {"train": (x[:n], y[:n]), "test": (x[:1], y[:1])} for k, n in enumerate(sizes)}
        federation = SimulatedFederation(module, data, workers=2)
        method = find("fupareto:guard", {"rounds": 2, "recovery_rounds": 1})
        w = parameters.read(module)
        predicted = budget.need(method, federation, FORGET, self.clients - FORGET)
        before = reset_peak()
        with tempfile.TemporaryDirectory() as place:
            api.unlearn(federation, w, list(data)[:FORGET], method, out=Path(place) / "run", measure_every=0)
        found = {
            "parameters": len(w),
            "predicted_mib": predicted / 2**20,
            "peak_mib": (memory_of("VmHWM") - before) / 1024,
        }
        return {name: round(value) for name, value in found.items()}


CASES = (Case("nfresnet18", (3, 32, 32), 100, 50, 2048), Case("lenet5", (1, 28, 28), 10, 1000, 1024))
TINY = (Case("lenet5", (1, 28, 28), 10, 12, 1024),)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "memory.json")
    chosen = parser.parse_args(arguments)
    rows = []
    for case in TINY if chosen.tiny else CASES:
        rows.append({**asdict(case), **isolated(case.measure, limit=LIMIT)})
        print(f"  {rows[-1]}", flush=True)
    write(chosen.out, {"cases": rows})


if __name__ == "__main__":
    main()
