"""Models of the paper: LeNet-5, CNN and NFResNet-18, without batch normalisation; and an MLP for digits.

ReLU comes after max-pooling where the papers have it before: the two commute, and there are four times fewer values to
rectify.
"""

import importlib
from collections import OrderedDict
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto.errors import UserError, did_you_mean
from fupareto.hf import causal_lm
from fupareto.randomness import derive

Shape = tuple[int, ...]  # of one sample: (channels, height, width) or (features,)


class MaxPool2(nn.MaxPool2d):
    """Max-pooling of 2x2 fields that is faster than PyTorch's where no gradient is computed.

    It then takes the maximum of four strided views, which gives the same values. PyTorch's max-pooling also stores the
    position of every maximum, which takes a third of the time of an evaluation of LeNet-5.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the maximum of every field."""
        if torch.is_grad_enabled():
            pooled: Tensor = super().forward(x)
            return pooled
        height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
        rows = torch.maximum(x[..., 0:height:2, :], x[..., 1:height:2, :])
        return torch.maximum(rows[..., 0:width:2], rows[..., 1:width:2])


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Build an MLP with one hidden layer of 64 units, for the embedded digits and for tables of features."""
    inputs = int(torch.Size(shape).numel())
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, classes))


def lenet5(shape: Shape, classes: int) -> nn.Module:
    """Build LeNet-5 for 28x28 (first convolution padded) or 32x32 images; 61,706 parameters for 1x28x28, 10 classes."""
    channels, height, _ = _image(shape, "lenet5", (28, 32))
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 6, 5, padding=(32 - height) // 2),
            pool1=MaxPool2(),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(6, 16, 5),
            pool2=MaxPool2(),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            fc1=nn.Linear(400, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, 84),
            relu4=nn.ReLU(),
            fc3=nn.Linear(84, classes),
        )
    )


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Build a CNN of two 5x5 convolutions with 64 channels and three dense layers.

    It has 797,962 parameters for 3x32x32 images and 10 classes.
    """
    channels, *_ = _image(shape, "cnn", (32,))
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 64, 5),
            pool1=MaxPool2(),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(64, 64, 5),
            pool2=MaxPool2(),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            fc1=nn.Linear(1600, 384),
            drop1=nn.Dropout(0.2),
            relu3=nn.ReLU(),
            fc2=nn.Linear(384, 192),
            drop2=nn.Dropout(0.5),
            relu4=nn.ReLU(),
            fc3=nn.Linear(192, classes),
        )
    )


class ScaledConv2d(nn.Conv2d):
    """Convolution with scaled weight standardisation and a learnable gain (Brock et al. 2021), no bias."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, size, stride, padding=size // 2, bias=False)
        self.gain = nn.Parameter(torch.ones(outputs, 1, 1, 1))

    def reset_parameters(self) -> None:
        """Initialise the weights and the gain; nn.Conv2d calls this before the gain exists."""
        nn.init.kaiming_normal_(self.weight, mode="fan_in", nonlinearity="linear")
        if hasattr(self, "gain"):
            nn.init.ones_(self.gain)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve with ``gain · fan_in^-1/2 · (W - mean) / (std + 1e-5)``, per output channel."""
        std, mean = torch.std_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        fan_in = self.weight[0].numel()
        weight = self.gain * fan_in**-0.5 * (self.weight - mean) / (std + 1e-5)
        return F.conv2d(x, weight, None, self.stride, self.padding)


def _activation(x: Tensor) -> Tensor:
    """Return ReLU scaled to keep unit variance on standard normal inputs."""
    return 1.7139588594436646 * F.relu(x)


class NFBlock(nn.Module):
    """Normaliser-free basic block: shortcut(x) + 0.2 · conv2(act(conv1(act(x)))).

    Args:
        inputs: Channels of the input.
        outputs: Channels of the output; where they differ from ``inputs``, the shortcut is a 1x1 convolution.
        stride: Stride of the first convolution and of the shortcut.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = ScaledConv2d(inputs, outputs, 3, stride)
        self.conv2 = ScaledConv2d(outputs, outputs, 3)
        self.shortcut = ScaledConv2d(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y: Tensor = self.conv2(_activation(self.conv1(_activation(x))))
        skip: Tensor = self.shortcut(x)
        return skip + 0.2 * y


def nfresnet18(shape: Shape, classes: int) -> nn.Module:
    """Build the two-stage normaliser-free ResNet of the reference code; 2,650,852 parameters for 100 classes."""
    channels, *_ = _image(shape, "nfresnet18", (28, 32))
    return nn.Sequential(
        OrderedDict(
            stem=ScaledConv2d(channels, 64, 3),
            pool=nn.MaxPool2d(3, 2, 1),
            relu=nn.ReLU(),
            stage1=nn.Sequential(NFBlock(64, 128), NFBlock(128, 128)),
            stage2=nn.Sequential(NFBlock(128, 256, stride=2), NFBlock(256, 256)),
            mean=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(256, classes),
        )
    )


class Bag(nn.Module):
    """Mean of token embeddings and two dense layers: text classification in its simplest form."""

    def __init__(self, outputs: int, tokens: int = 256, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(tokens, width)
        self.head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return one output per class for token ids (N, L)."""
        found: Tensor = self.head(self.embedding(x))
        return found


class Gru(nn.Module):
    """A small language model: embeddings, one GRU layer, and a dense layer over the tokens."""

    def __init__(self, tokens: int, width: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, tokens)

    def forward(self, x: Tensor) -> Tensor:
        """Return one output per token for every position of token ids (N, L)."""
        hidden, _ = self.gru(self.embedding(x))
        found: Tensor = self.head(hidden)
        return found


def bag(shape: Shape, classes: int) -> nn.Module:
    """Build a mean of byte embeddings with two dense layers, for token ids below 256."""
    return Bag(classes)


def gru(shape: Shape, classes: int) -> nn.Module:
    """Build a language model of one GRU layer; 104,896 parameters for bytes."""
    return Gru(classes)


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "mlp": mlp,
    "lenet5": lenet5,
    "cnn": cnn,
    "nfresnet18": nfresnet18,
    "bag": bag,
    "gru": gru,
}
HUGGING_FACE = "hf:"  # begins the name of a model, of the hub or of a folder


def build(name: str, shape: Shape, classes: int, seed: int, check: bool = True, lora: int = 0) -> nn.Module:
    """Build a newly initialised model.

    Args:
        name: A name in ``MODELS``, ``hf:NAME`` (a model or folder of Hugging Face), or ``package.module:function``,
            which is called as
            ``function(shape, classes)`` and returns an ``nn.Module``.
        shape: Shape of one sample.
        classes: Number of classes.
        seed: Seed of the initialisation.
        check: Whether the model must give one output per class for samples of fractions of this shape.
        lora: Rank of LoRA adapters of a model ``hf:NAME``; 0 for none.

    Returns:
        The model.
    """
    if lora and not name.startswith(HUGGING_FACE):
        raise UserError(f"lora = {lora} is an option of models of Hugging Face, hf:NAME, not of '{name}'")
    if name.startswith(HUGGING_FACE):
        factory: Callable[[Shape, int], nn.Module] = lambda shape, classes: causal_lm(  # noqa: E731
            name.removeprefix(HUGGING_FACE), lora
        )
    else:
        factory = MODELS[name] if name in MODELS else _imported(name)
    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, "init"))
        try:
            module = factory(shape, classes)
        except UserError:
            raise
        except Exception as error:  # a user's function may raise anything
            raise UserError(
                f"model '{name}', called as function(shape, classes), raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(module, nn.Module):
            raise UserError(f"model '{name}' returned {type(module).__name__}, not a torch.nn.Module")
        if check:
            check_outputs(module, shape, classes)
    return module


def check_outputs(module: nn.Module, shape: Shape, classes: int | None = None) -> int:
    """Refuse a model that does not fit the data.

    Args:
        module: The model.
        shape: Shape of one sample.
        classes: Number of classes; None accepts any.

    Returns:
        The number of outputs per sample.
    """
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            outputs = module(torch.zeros(2, *shape, device=next(module.parameters(), torch.empty(0)).device))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise UserError(f"the model cannot take samples of shape {shape}: {error}") from error
    finally:
        module.train(was_training)
    if not isinstance(outputs, Tensor):
        raise UserError(f"the model's outputs must be one tensor (batch, classes), not a {type(outputs).__name__}")
    if outputs.dim() != 2 or len(outputs) != 2 or classes not in (None, outputs.shape[1]):
        data = "" if classes is None else f", but the data have {classes} classes"
        raise UserError(
            f"the model's outputs have shape {tuple(outputs.shape)} for 2 samples{data}; "
            f"the last layer must give (batch, {classes or 'classes'})"
        )
    return int(outputs.shape[1])


def _imported(name: str) -> Callable[[Shape, int], nn.Module]:
    """Import the user's function that builds a model."""
    module, _, function = name.partition(":")
    if not function:
        hint = did_you_mean(name, MODELS)
        raise UserError(f"unknown model '{name}'; there are {', '.join(MODELS)}, or package.module:function{hint}")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # a user's module may raise anything
        raise UserError(f"model '{name}' could not be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UserError(f"model '{name}' is not a function of (shape, classes)")
    return found  # type: ignore[no-any-return]


def _image(shape: Shape, model: str, sizes: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width; refuse samples that are not square images of one of ``sizes``."""
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] not in sizes:
        wanted = " or ".join(f"{s}x{s}" for s in sizes)
        raise UserError(f"model '{model}' takes square images of {wanted}, not samples of shape {shape}")
    return shape[0], shape[1], shape[2]
