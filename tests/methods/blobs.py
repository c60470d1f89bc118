"""A real federation that runs in milliseconds: four clients, a small network with dropout, points around centres."""

from functools import cache

import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation import SimulatedFederation
from fupareto.methods import FedAvg

FORGET = ("0", "1")


def model() -> nn.Module:
    torch_state = torch.get_rng_state()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 3))
    torch.set_rng_state(torch_state)
    return net


@cache
def federation() -> SimulatedFederation:
    """Forget clients have every label shifted by one, so the two sides are in conflict."""
    generator = torch.Generator().manual_seed(1)
    centres = 1.5 * torch.randn(3, 4, generator=generator)
    clients = {}
    for k in range(4):
        y = torch.arange(12) % 3
        x = centres[y] + 0.6 * torch.randn(12, 4, generator=generator) + 0.3 * torch.randn(4, generator=generator)
        labels = (y + 1) % 3 if str(k) in FORGET else y
        clients[str(k)] = {"train": (x, labels), "test": (x[:3], labels[:3])}
    return SimulatedFederation(model(), clients, workers=1)


@cache
def trained() -> Tensor:
    method, clients = FedAvg(rounds=30, lr=0.5, batch_size=4), federation()
    state = method.init(clients, parameters.read(model()), None)
    while not state.done:
        state = method.step(clients, state)
    return state.w
