"""What does a run really take? Run as a script: prints what is predicted and by how much the process grew, as JSON."""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from fupareto import api, models, parameters
from fupareto.federation import SimulatedFederation
from fupareto.methods.registry import find
from fupareto.run import budget


def status(name: str) -> int:
    """Return a line of /proc/self/status in bytes: VmRSS is what there is, VmHWM the most there ever was."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.split(f"{name}:")[1].split()[0])


def world(build: Callable[[], nn.Module], shape: tuple[int, ...], clients: int, samples: int) -> SimulatedFederation:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(samples, *shape, generator=generator), torch.arange(samples) % 3
    return SimulatedFederation(build(), {str(k): {"train": (x, y), "test": (x, y)} for k in range(clients)}, workers=2)


def run(engine: SimulatedFederation, w: torch.Tensor, name: str, options: dict[str, float], forget: int) -> None:
    method = find(name, options)
    leave = [str(k) for k in range(forget)]
    with tempfile.TemporaryDirectory() as place:
        if name == "fedavg":
            api.train(engine, w, method, out=Path(place) / "run", measure_every=0)
        else:
            api.unlearn(engine, w, leave, method, out=Path(place) / "run", measure_every=0)


def main(model: str, shape: str, clients: str, samples: str, name: str, options: str, forget: str) -> None:
    size = tuple(json.loads(shape))

    def build() -> nn.Module:
        if model == "wide":
            return nn.Sequential(nn.Flatten(), nn.Linear(size[0], 640), nn.ReLU(), nn.Linear(640, 10))
        return models.build(model, size, 10, 0)

    chosen = json.loads(options)
    w = parameters.read(build())
    run(world(build, size, 4, int(samples)), w, name, chosen, 1)  # whatever is loaded or cached once
    engine = world(build, size, int(clients), int(samples))
    before = status("VmRSS")
    run(engine, w, name, chosen, int(forget))
    count = 0 if name == "fedavg" else int(forget)
    needed = budget.need(find(name, chosen), engine, count, int(clients) - count)
    grew = status("VmHWM") - before
    print(json.dumps({"parameters": len(w), "needed": needed, "grew": grew}))


if __name__ == "__main__":
    main(*sys.argv[1:])
