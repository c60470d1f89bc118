"""How much faster is a simulated FedAvg round than the obvious loop over clients? One run, interleaved, as ratios.

    python benchmarks/fedavg_round.py [--repeats 7] [--out benchmarks/fedavg_round.json]

The obvious loop is what a tutorial writes: one model, for every client a DataLoader, SGD from torch.optim, then the
weighted mean of the state dicts; at PyTorch's default number of threads and at one. Both sides do the same arithmetic,
and the benchmark first checks that they end with the same weights.
"""

import argparse
import copy
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fupareto import models, parameters
from fupareto.federation import Local, SimulatedFederation
from fupareto.losses import Loss

LR, BATCH = 0.1, 200
Clients = list[tuple[Tensor, Tensor]]


class EagerLeNet5(nn.Module):
    """LeNet-5 as papers draw it: ReLU before pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc2(F.relu(self.fc1(x.flatten(1)))))
        out: Tensor = self.fc3(x)
        return out


def eager_round(start: nn.Module, clients: Clients) -> Tensor:
    """One FedAvg round, the obvious way."""
    total, samples = None, 0
    for x, y in clients:
        model = copy.deepcopy(start)
        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        for batch_x, batch_y in DataLoader(TensorDataset(x, y), batch_size=BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(batch_x), batch_y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        update = {name: t.detach() * len(y) for name, t in model.state_dict().items()}
        total = update if total is None else {name: total[name] + update[name] for name in total}
        samples += len(y)
    assert total is not None
    return torch.cat([(t / samples).reshape(-1) for t in total.values()])


def timed(work: Callable[[], Tensor]) -> tuple[float, Tensor]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--samples", type=int, default=2000, help="per client")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()

    cores = os.cpu_count() or 1
    generator = torch.Generator().manual_seed(0)
    clients: Clients = [
        (
            torch.rand(arguments.samples, 1, 28, 28, generator=generator),
            torch.randint(10, (arguments.samples,), generator=generator),
        )
        for _ in range(arguments.clients)
    ]
    ours = models.build("lenet5", (1, 28, 28), 10, seed=0)
    w = parameters.read(ours)
    eager = EagerLeNet5()
    parameters.write(eager, w)
    data = {str(i): {"train": c, "test": (c[0][:1], c[1][:1])} for i, c in enumerate(clients)}
    federation = SimulatedFederation(ours, data, workers=cores)
    local = Local(LR, epochs=1, batch_size=BATCH)

    def simulated() -> Tensor:
        mean = federation.train_mean(w, federation.ids, Loss("ce"), local).w
        assert mean is not None
        return mean

    def eager_with(threads: int) -> Callable[[], Tensor]:
        def work() -> Tensor:
            torch.set_num_threads(threads)
            try:
                return eager_round(eager, clients)
            finally:
                torch.set_num_threads(1)

        return work

    contenders = {"fupareto": simulated, "eager_default": eager_with(cores), "eager_1_thread": eager_with(1)}
    results = {name: work() for name, work in contenders.items()}  # warm-up, and the same answer from all
    gap = max(float((results["fupareto"] - r).abs().max()) for r in results.values())
    assert gap < 1e-4, f"the contenders disagree by {gap}"
    repeatable = torch.equal(simulated(), results["fupareto"])

    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(arguments.repeats):
        for name, work in contenders.items():
            seconds[name].append(timed(work)[0])
    ratios = {
        name: sorted(e / o for e, o in zip(seconds[name], seconds["fupareto"], strict=True))
        for name in contenders
        if name != "fupareto"
    }
    report = {
        "what": f"FedAvg round, LeNet-5, {arguments.clients} clients x {arguments.samples} samples, batch {BATCH}",
        "cores": cores,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "repeats": arguments.repeats,
        "bit_for_bit_repeatable": repeatable,
        "largest_difference_of_weights": gap,
        "median_seconds": {name: round(statistics.median(s), 3) for name, s in seconds.items()},
        "times_as_fast_as": {
            name: {"median": round(statistics.median(r), 2), "min": round(r[0], 2), "max": round(r[-1], 2)}
            for name, r in ratios.items()
        },
    }
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
