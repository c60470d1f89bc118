"""How fast is a simulated FedAvg round, beside what else people run and beside what the cores can do?

    python benchmarks/fedavg_round.py [--tiny] [--out benchmarks/fedavg_round.json]

The contenders, taking turns: our engine; the loop over clients that a tutorial writes, at as many threads as cores and
at one; an ordinary Flower app in Flower's simulation (Ray); pfl-research in one process and in one per core. All start
from the same weights and do the same arithmetic, and where no dropout draws at random they must end with the same
weights. The cores' peak is the rate of large float32 matrix products on all of them, measured between the turns.
"""

import argparse
import copy
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cases
from cases import BATCH, CASES, TINY, Case, Client
from common import RESULTS, interleaved, ratios, seconds, skip, spread, write
from fupareto import parameters
from fupareto.federation import Local, SimulatedFederation
from fupareto.tasks.losses import Loss
from peers import Peer

CORES = os.cpu_count() or 1
HERE = Path(__file__).parent
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={CORES}"]
PEERS: dict[str, tuple[tuple[str, ...], list[str]]] = {  # name -> packages it needs, its command
    "flower": (("flwr", "ray"), [str(HERE / "peer_flower.py")]),
    "pfl": (("pfl",), [str(HERE / "peer_pfl.py")]),
    "pfl_worker_per_core": (("pfl",), [*TORCHRUN, str(HERE / "peer_pfl.py")]),
}


def eager_round(start: nn.Module, clients: Sequence[Client], lr: float) -> Tensor:
    """One FedAvg round, the obvious way."""
    total: dict[str, Tensor] = {}
    for x, y in clients:
        model = copy.deepcopy(start)
        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=lr)
        for batch_x, batch_y in DataLoader(TensorDataset(x, y), batch_size=BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(batch_x), batch_y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        for name, t in model.state_dict().items():
            total[name] = total.get(name, 0) + t.detach() * len(y)
    samples = sum(len(y) for _, y in clients)
    return torch.cat([(t / samples).reshape(-1) for t in total.values()])


def with_threads(threads: int, work: Callable[[], Tensor]) -> Tensor:
    """Our engine leaves the process at one thread, for good reason; the obvious loop gets what it would have."""
    torch.set_num_threads(threads)
    try:
        return work()
    finally:
        torch.set_num_threads(1)


def product_time(size: int, times: int = 5) -> float:
    """Return the shortest time of a float32 matrix product of 2 size^3 operations on all cores."""
    a = torch.rand(size, size)
    return min(seconds(lambda: with_threads(CORES, lambda: a @ a)) for _ in range(times))


def agree(before: Tensor, results: dict[str, Tensor]) -> dict[str, float]:
    """Return how far weights moved and differ; refuse contenders that did not do the same work.

    Rounding decides which of two nearly equal outputs a pool takes and which ReLU is open, so that one loop at two
    numbers of threads ends with weights that differ in the fourth digit. A batch too few or a wrong mean shows in the
    first or second.
    """

    def largest(a: Tensor, b: Tensor) -> float:
        return float(f"{float((a - b).abs().max()):.2g}")

    moved = largest(results["fupareto"], before)
    gaps = {name: largest(results["fupareto"], r) for name, r in results.items() if name != "fupareto"}
    assert max(gaps.values()) < 0.03 * moved, f"contenders disagree: {gaps}, where the largest move is {moved}"
    threads = largest(results["eager_thread_per_core"], results["eager_1_thread"])
    return {"largest_move": moved, "ours_and_others": max(gaps.values()), "loop_at_two_numbers_of_threads": threads}


def run(case: Case, size: int) -> dict[str, Any]:
    """Time one case: a first round of everybody, to warm up and for the weights, then rounds in turns."""
    print(f"{case.name}:", flush=True)
    model = cases.ours(case.model)
    w = parameters.read(model)
    eager = cases.eager(case.model)
    parameters.write(eager, w)
    clients = [cases.client(case.shape, case.samples, i) for i in range(case.clients)]
    data = {str(i): {"train": c, "test": (c[0][:1], c[1][:1])} for i, c in enumerate(clients)}
    federation = SimulatedFederation(model, data, workers=CORES)
    local = Local(case.lr, epochs=1, batch_size=BATCH)

    def simulated() -> Tensor:
        mean = federation.train_mean(w, federation.ids, Loss("ce"), local).w
        assert mean is not None
        return mean

    here: dict[str, Callable[[], Tensor]] = {
        "fupareto": simulated,
        "eager_thread_per_core": lambda: with_threads(CORES, lambda: eager_round(eager, clients, case.lr)),
        "eager_1_thread": lambda: with_threads(1, lambda: eager_round(eager, clients, case.lr)),
    }
    results = {name: work() for name, work in here.items()}
    contenders: dict[str, Callable[[], float]] = {
        name: lambda work=work: seconds(work)  # type: ignore[misc]
        for name, work in here.items()
    }
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, (needs, command) in PEERS.items():
            absent = [package for package in needs if importlib.util.find_spec(package) is None]
            if absent:
                skipped[name] = skip(name, f"{', '.join(absent)} not installed (pip install 'fupareto[bench]')")
                continue
            peer = stack.enter_context(Peer([sys.executable, *command], case, place / name))
            peer.round()
            results[name] = peer.result()
            contenders[name] = peer.round
        times = interleaved({**contenders, "product": lambda: product_time(size)}, case.repeats)
    peaks = [2 * size**3 / s for s in times.pop("product")]
    agreement = None if cases.dropout(model) else agree(w, results)
    work = cases.flops(case)
    return {
        "case": case.name,
        "repeats": case.repeats,
        "flops": work,
        "product_gflops": spread([p / 1e9 for p in peaks]),
        "agreement": agreement,
        "bit_for_bit_repeatable": torch.equal(simulated(), results["fupareto"]),
        "seconds": {name: spread(t) for name, t in times.items()},
        "share_of_peak": {
            name: spread([work / s / p for s, p in zip(t, peaks, strict=True)]) for name, t in times.items()
        },
        "times_as_fast_as": {name: ratios(t, times["fupareto"]) for name, t in times.items() if name != "fupareto"},
        "skipped": skipped,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "fedavg_round.json")
    chosen = parser.parse_args(arguments)
    found = [run(case, 100 if chosen.tiny else 3000) for case in (TINY if chosen.tiny else CASES)]
    write(chosen.out, {"cases": found}, ("flwr", "ray", "pfl"))


if __name__ == "__main__":
    main()
