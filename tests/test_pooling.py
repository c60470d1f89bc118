"""Pooling by strided views is pooling: the same values, and the same gradients where maxima are equal."""

import pytest
import torch
from torch import nn

from fupareto.pooling import MaxPool2

LAYOUTS = [torch.contiguous_format, torch.channels_last]
SHAPES = [(2, 3, 10, 10), (3, 6, 4, 8), (1, 6, 7, 5), (2, 1, 2, 3), (2, 8, 4, 4)]  # odd sizes and many channels too


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_are_those_of_pytorch(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(memory_format=layout)
    x[0, 0, 0, 1] = torch.nan
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(MaxPool2()(x), nn.MaxPool2d(2)(x), atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("levels", [1, 2, 3, 1000])  # of the values: with few of them, most maxima are equal
def test_gradients_are_those_of_pytorch(shape: tuple[int, ...], layout: torch.memory_format, levels: int) -> None:
    generator = torch.Generator().manual_seed(levels)
    x = torch.randint(levels, shape, generator=generator).float().to(memory_format=layout).requires_grad_()
    found = []
    for layer in (MaxPool2(), nn.MaxPool2d(2)):
        y = layer(x)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(memory_format=layout)
        found.append(torch.autograd.grad(y, x, weights)[0])
    assert torch.equal(*found)


def test_few_channels_do_not_go_through_pytorch() -> None:
    few, many = (torch.rand(1, channels, 4, 4, requires_grad=True) for channels in (6, 8))
    assert "Pairwise" in type(MaxPool2()(few).grad_fn).__name__
    assert "MaxPool2D" in type(MaxPool2()(many).grad_fn).__name__
