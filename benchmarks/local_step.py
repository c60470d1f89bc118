"""Where does a client's step of local SGD spend its time? The torch profiler's answer, by operator.

    python benchmarks/local_step.py [--tiny] [--out benchmarks/local_step.json]

One thread, as a worker of the engine has, batches of 200, on random data. Shares are of the time within operators.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import cases
from common import RESULTS, seconds, spread, write
from fupareto import parameters
from fupareto.federation.local import descend
from fupareto.federation.questions import Train
from fupareto.tasks.losses import Loss
from fupareto.tasks.samples import samples_of

PARTS = {  # what operators are, by a part of their names; the first that fits
    "convolution, backward": ("convolution_backward",),
    "convolution": ("convolution",),
    "pooling, backward": ("pool2d_with_indices_backward", "fill_", "zero_"),
    "pooling": ("pool2d",),
    "dense layers": ("addmm", "mm", "linear"),
    "ReLU": ("clamp_min", "threshold_backward", "relu"),
}
STEPS = {"lenet5": 20, "cnn": 3, "nfresnet18": 1}


def part(operator: str) -> str:
    found = (name for name, words in PARTS.items() if any(word in operator for word in words))
    return next(found, "everything else")


def measure(model: str, steps: int, samples: int) -> dict[str, Any]:
    """Profile some steps, after timing as many without the profiler."""
    module = cases.ours(model)
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    module.train()
    shape = next(case.shape for case in cases.CASES if case.model == model)
    x = torch.rand(steps * samples, *shape).to(memory_format=torch.channels_last)
    y = torch.arange(len(x)) % 10
    question = Train(parameters.read(module), Loss("ce"), 0.01, 1, samples, 0)

    def work() -> int:
        return descend(module, samples_of((x, y)), None, question, "client")

    work()
    times = [seconds(work) / steps for _ in range(5)]
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work()
    shares: dict[str, float] = {}
    for event in profiler.key_averages():
        shares[part(event.key)] = shares.get(part(event.key), 0.0) + event.self_cpu_time_total
    total = sum(shares.values())
    order = sorted(shares, key=lambda name: -shares[name])
    return {
        "model": model,
        "samples": samples,
        "milliseconds": spread([1000 * t for t in times]),
        "share": {name: round(shares[name] / total, 3) for name in order},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "local_step.json")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = []
    for model, steps in STEPS.items():
        found.append(measure(model, 1 if chosen.tiny else steps, 2 if chosen.tiny else 200))
        print(f"  {found[-1]}", flush=True)
    write(chosen.out, {"models": found})


if __name__ == "__main__":
    main()
