"""The order in which clients of the simulated engine begin, and who computes in vain."""

import time
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation import Local, SimulatedFederation
from fupareto.federation.collected import Trial
from fupareto.tasks.losses import Loss

CE = Loss("ce")
SIZES = {"small": 3, "middle": 5, **{f"c{k}": 6 for k in range(20)}, "large": 40}  # in the order asked


class Noting(nn.Module):
    """One dense layer that notes whose samples go through it: a client's features are hundredths of its size."""

    begun: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        type(self).begun.append(round(100 * float(x[0, 0])))
        time.sleep(0.01)  # longer than it takes to read an answer
        out: Tensor = self.layer(x)
        return out


def federation(sizes: Mapping[str, int]) -> SimulatedFederation:
    data = {i: (torch.full((n, 2), n / 100), torch.zeros(n, dtype=torch.int64)) for i, n in sizes.items()}
    made = SimulatedFederation(Noting(), {i: {"train": d, "test": d} for i, d in data.items()}, workers=1)
    Noting.begun.clear()
    return made


def test_the_largest_clients_begin() -> None:
    engine = federation(SIZES)
    engine.train_mean(parameters.read(Noting()), engine.ids, CE, Local(lr=0.1, batch_size=100))
    assert Noting.begun == sorted(SIZES.values(), reverse=True)


def test_a_search_begins_with_the_client_that_is_asked_first_and_spares_the_others() -> None:
    engine = federation(SIZES)
    w = parameters.read(Noting())
    trial = Trial(w, torch.ones_like(w), (0.4, 0.2, 0.1))
    nobody = [dict.fromkeys(SIZES, -1.0)] * 3  # no loss is small enough
    list(engine.losses(trial, dict.fromkeys(SIZES, CE), {}, nobody, first="middle"))
    assert Noting.begun[0] == SIZES["middle"]
    assert len(Noting.begun) <= 3 * 3  # of 23 for each step: the first, and who began before its answer was read
