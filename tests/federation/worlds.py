"""Tiny federations: clients with a few dozen samples of three classes, and models that fit them."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation import SimulatedFederation
from fupareto.federation.request import Splits
from fupareto.models import build

CLASSES = 3
FEATURES = (8,)
IMAGES = (1, 8, 8)
FORGET = ("c1", "c4")
TURNED = "c1"  # learnt against the others, so easy to forget; c4 is like the others, so forgetting it is a conflict

Clients = dict[str, Splits]
Factory = Callable[[], nn.Module]


def draw(shape: tuple[int, ...], seed: int, size: int, turned: bool) -> tuple[Tensor, Tensor]:
    """Noisy class means; ``turned`` clients call every class by the next one's name."""
    means = 2 * torch.randn(CLASSES, *shape, generator=torch.Generator().manual_seed(99))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (size,), generator=generator)
    inputs = means[labels] + torch.randn(size, *shape, generator=generator)
    return inputs, (labels + 1) % CLASSES if turned else labels


def clients(shape: tuple[int, ...] = FEATURES, count: int = 6) -> Clients:
    """Clients ``c0`` to ``c5`` of 20 to 40 samples."""
    return {
        (name := f"c{k}"): {
            "train": draw(shape, 2 * k, 20 + 4 * k, name == TURNED),
            "test": draw(shape, 2 * k + 1, 10, name == TURNED),
        }
        for k in range(count)
    }


def plain() -> nn.Module:
    return build(f"{__name__}:small", FEATURES, CLASSES, seed=3)


def dropping() -> nn.Module:
    return build(f"{__name__}:with_dropout", FEATURES, CLASSES, seed=3)


def normed() -> nn.Module:
    return build(f"{__name__}:with_batchnorm", IMAGES, CLASSES, seed=3)


def small(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 12), nn.Tanh(), nn.Linear(12, classes))


def with_dropout(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 12), nn.Dropout(0.5), nn.ReLU(), nn.Linear(12, classes))


def with_batchnorm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(shape[0], 4, 3),
            norm=nn.BatchNorm2d(4),
            relu=nn.ReLU(),
            drop=nn.Dropout2d(0.3),
            flat=nn.Flatten(),
            head=nn.Linear(4 * 36, classes),
        )
    )


def world(model: Factory = plain, workers: int = 1) -> SimulatedFederation:
    return SimulatedFederation(model(), clients(shape_of(model)), workers)


def shape_of(model: Factory) -> tuple[int, ...]:
    return IMAGES if model is normed else FEATURES


def start(model: Factory = plain) -> Tensor:
    return parameters.read(model())
