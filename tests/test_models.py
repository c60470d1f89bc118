import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.errors import UserError
from fupareto.models import MODELS, MaxPool2, ScaledConv2d, Shape, build

SETTINGS: list[tuple[str, Shape, int, int]] = [
    ("lenet5", (1, 28, 28), 10, 61_706),
    ("cnn", (3, 32, 32), 10, 797_962),
    ("cnn", (3, 32, 32), 43, 804_331),
    ("nfresnet18", (3, 32, 32), 100, 2_650_852),
    ("mlp", (64,), 10, 64 * 64 + 64 + 64 * 10 + 10),
]


def batch(shape: Shape, count: int = 3) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "shape", "classes", "wanted"), SETTINGS)
def test_parameters_and_outputs(name: str, shape: Shape, classes: int, wanted: int) -> None:
    module = build(name, shape, classes, seed=0)
    assert sum(p.numel() for p in module.parameters()) == wanted
    assert module(batch(shape)).shape == (3, classes)
    assert not list(module.buffers())  # no batch norm anywhere


@pytest.mark.parametrize(("name", "shape"), [("lenet5", (3, 32, 32)), ("mlp", (1, 8, 8))])
def test_other_shapes_that_fit(name: str, shape: Shape) -> None:
    assert build(name, shape, 7, seed=0)(batch(shape)).shape == (3, 7)


def pooled_after_relu(module: nn.Sequential) -> nn.Sequential:
    """The papers' order: every relu that directly follows a max-pooling goes before it."""
    layers = list(module.named_children())
    for k in range(1, len(layers)):
        if isinstance(layers[k][1], nn.ReLU) and isinstance(layers[k - 1][1], nn.MaxPool2d):
            layers[k - 1], layers[k] = layers[k], layers[k - 1]
    return nn.Sequential(OrderedDict(layers))


@pytest.mark.parametrize(
    ("name", "shape"), [("lenet5", (1, 28, 28)), ("cnn", (3, 32, 32)), ("nfresnet18", (3, 32, 32))]
)
def test_relu_after_pooling_is_pooling_after_relu(name: str, shape: Shape) -> None:
    module = build(name, shape, 10, seed=0).eval()
    assert isinstance(module, nn.Sequential)
    printed, x = pooled_after_relu(module), batch(shape, count=1)
    assert list(dict(printed.named_children())) != list(dict(module.named_children()))
    with torch.no_grad():
        torch.testing.assert_close(module(x), printed(x), atol=0, rtol=0)


@pytest.mark.parametrize("shape", [(2, 3, 10, 10), (1, 6, 7, 5), (2, 1, 2, 3)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_without_gradients_is_pooling(shape: Shape, layout: torch.memory_format) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(memory_format=layout)
    x[0, 0, 0, 1] = torch.nan
    ours, theirs = MaxPool2(), nn.MaxPool2d(2)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(ours(x), theirs(x), atol=0, rtol=0, equal_nan=True)


def test_cnn_drops_in_training_only() -> None:
    module = build("cnn", (3, 32, 32), 10, seed=0)
    x = batch((3, 32, 32))
    with torch.no_grad():
        assert not torch.equal(module.train()(x), module(x))
        assert torch.equal(module.eval()(x), module(x))


def test_scaled_convolution_is_its_formula() -> None:
    convolution = ScaledConv2d(2, 3, 3)
    with torch.no_grad():
        convolution.gain.copy_(torch.tensor([1.0, 2.0, 0.5]).view(3, 1, 1, 1))
        weight = torch.empty_like(convolution.weight)
        for k, raw in enumerate(convolution.weight):
            weight[k] = convolution.gain[k] * (raw - raw.mean()) / (raw.std(correction=0) + 1e-5) / raw.numel() ** 0.5
        x = batch((2, 6, 6))
        torch.testing.assert_close(convolution(x), nn.functional.conv2d(x, weight, padding=1))


def test_weight_standardisation_forgets_scale_and_shift() -> None:
    module = build("nfresnet18", (1, 28, 28), 5, seed=0).eval()
    x = batch((1, 28, 28), count=1)
    with torch.no_grad():
        before = module(x)
        touched = [m for m in module.modules() if isinstance(m, ScaledConv2d)]
        assert len(touched) == 11
        for k, convolution in enumerate(touched):
            convolution.weight.mul_(1.5 + 0.25 * k).add_(0.3)
        torch.testing.assert_close(module(x), before, atol=2e-3, rtol=2e-3)
        for convolution in touched:
            convolution.gain.mul_(1.5)
        assert not torch.allclose(module(x), before, atol=1e-1, rtol=1e-1)


@pytest.mark.parametrize("name", [n for n in MODELS if n != "nfresnet18"])
def test_same_seed_same_weights_whatever_was_drawn_before(name: str) -> None:
    images = name not in ("bag", "gru")  # which take token ids, and are checked with the clients' own

    def weights(seed: int) -> Tensor:
        return parameters.read(build(name, (3, 32, 32), 10, seed=seed, check=images))

    first = weights(5)
    torch.rand(17)
    state = torch.get_rng_state()
    again = weights(5)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(again, first)
    assert not torch.equal(weights(6), first)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("lenet5", (1, 30, 30), "square images of 28x28 or 32x32"),
        ("lenet5", (1, 28, 32), "square images"),
        ("lenet5", (64,), "square images"),
        ("cnn", (3, 28, 28), "square images of 32x32"),
        ("nfresnet18", (3, 64, 64), "square images of 28x28 or 32x32"),
        ("resnet50", (3, 32, 32), "unknown model 'resnet50'; there are mlp, lenet5"),
        ("no_such_package:model", (8,), "could not be imported"),
        ("fupareto.models:no_such_model", (8,), "could not be imported"),
        ("fupareto.models:MODELS", (8,), "is not a function"),
        (":model", (8,), "could not be imported"),
    ],
)
def test_models_that_cannot_be_built_are_the_users_error(name: str, shape: Shape, words: str) -> None:
    with pytest.raises(UserError, match=words):
        build(name, shape, 10, seed=0)


@pytest.fixture
def user_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module of the user's, on the path."""
    (tmp_path / "users_own_models.py").write_text(
        "from torch import nn\n"
        "def linear(shape, classes):\n"
        "    return nn.Linear(shape[0], classes)\n"
        "def ten_outputs(shape, classes):\n"
        "    return nn.Linear(shape[0], 10)\n"
        "def eight_inputs(shape, classes):\n"
        "    return nn.Linear(8, classes)\n"
        "def text(shape, classes):\n"
        "    return 'a model'\n"
        "def images_only(shape, classes):\n"
        "    return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(5, classes))\n"
        "class Pair(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x), x\n"
        "def pair(shape, classes):\n"
        "    return Pair(5, classes)\n"
        "def no_arguments():\n"
        "    return nn.Linear(5, 3)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_own_models", raising=False)
    return "users_own_models"


def test_users_own_model(user_models: str) -> None:
    module = build(f"{user_models}:linear", (5,), 3, seed=1)
    assert module(batch((5,))).shape == (3, 3)
    assert torch.equal(parameters.read(module), parameters.read(build(f"{user_models}:linear", (5,), 3, seed=1)))
    assert module.training


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("ten_outputs", r"outputs have shape \(2, 10\) for 2 samples, but the data have 3 classes"),
        ("eight_inputs", r"cannot take samples of shape \(5,\)"),
        ("text", "returned str, not a torch.nn.Module"),
        ("missing", "could not be imported"),
        ("images_only", "cannot take samples"),
        ("pair", "outputs"),
        ("no_arguments", "shape, classes"),
    ],
)
def test_users_model_that_does_not_fit(user_models: str, function: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        build(f"{user_models}:{function}", (5,), 3, seed=1)
