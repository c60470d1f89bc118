"""Which FedAvg rounds are timed? Models and random data, the same in our process and in the peers' processes."""

from dataclasses import asdict, dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fupareto import models

LR, BATCH = 0.1, 200
Client = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """One model, some clients, one local epoch of plain SGD."""

    model: str
    shape: tuple[int, int, int]
    clients: int
    samples: int  # per client
    repeats: int
    lr: float = LR

    @property
    def name(self) -> str:
        return f"{self.model}, {self.clients} clients x {self.samples:,} samples"

    @property
    def plain(self) -> dict[str, object]:
        return asdict(self)


CASES = (
    Case("lenet5", (1, 28, 28), 10, 6000, repeats=3),
    Case("cnn", (3, 32, 32), 10, 1000, repeats=3),
    Case("nfresnet18", (3, 32, 32), 4, 200, repeats=3),
)
TINY = (Case("lenet5", (1, 28, 28), 2, 10, repeats=2),)


def eager(model: str) -> nn.Module:
    """Return the model as papers draw it and tutorials write it: ReLU before pooling, contiguous."""
    return {"lenet5": EagerLeNet5, "cnn": EagerCNN}[model]() if model in ("lenet5", "cnn") else ours(model)


def ours(model: str) -> nn.Module:
    shape = next(case.shape for case in CASES if case.model == model)
    return models.build(model, shape, 10, seed=0)


def dropout(model: nn.Module) -> bool:
    """Return whether two rounds of the same model may differ by what dropout draws."""
    return any(isinstance(part, nn.Dropout) for part in model.modules())


@lru_cache(maxsize=64)
def client(shape: tuple[int, ...], samples: int, number: int) -> Client:
    """Return one client's random data, kept in memory as a user would keep them."""
    generator = torch.Generator().manual_seed(number)
    return torch.rand(samples, *shape, generator=generator), torch.randint(10, (samples,), generator=generator)


def flops(case: Case) -> int:
    """Count the floating-point operations of one round's forward and backward passes."""
    module, (x, y) = eager(case.model), client(case.shape, 2, 0)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
    return int(counter.get_total_flops()) // 2 * case.samples * case.clients


class EagerLeNet5(nn.Module):
    """LeNet-5; its parameters are in the order of ours."""

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


class EagerCNN(nn.Module):
    """Two convolutions and three dense layers, with dropout; its parameters are in the order of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 5), nn.Conv2d(64, 64, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(1600, 384), nn.Linear(384, 192), nn.Linear(192, 10)
        self.drop1, self.drop2 = nn.Dropout(0.2), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.drop2(F.relu(self.fc2(self.drop1(F.relu(self.fc1(x.flatten(1)))))))
        out: Tensor = self.fc3(x)
        return out
