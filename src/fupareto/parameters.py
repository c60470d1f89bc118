"""Conversion between an nn.Module and one flat float32 vector.

The vector holds the trainable parameters in ``named_parameters`` order, then the floating-point buffers (running
statistics). The gradient of a buffer is zero by definition: a step along gradients leaves buffers unchanged, while an
average of local models averages them. Frozen parameters and integer buffers are not in the vector; they are part of the
module that every client already has. This is the only module that depends on the internals of nn.Module.
"""

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fupareto.errors import UserError
from fupareto.tasks.trees import leaves


def _trainable(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the trainable parameters by name."""
    return ((name, p) for name, p in module.named_parameters() if p.requires_grad)


def _entries(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of the vector by name, in its order."""
    yield from _trainable(module)
    buffers = [(name, b) for name, b in module.named_buffers() if b.is_floating_point()]
    if buffers:  # only persistent ones; others, such as a causal mask, are rebuilt by the constructor
        persistent = module.state_dict().keys()
        yield from ((name, b) for name, b in buffers if name in persistent)


def _sha256(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the SHA-256 of tensors, of their names, types, shapes and bytes; None if there are none."""
    if not tensors:
        return None
    found = hashlib.sha256()
    for name, t in sorted(tensors.items()):
        found.update(f"{name}:{t.dtype}:{tuple(t.shape)};".encode())
        found.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors in the flat vector of a module, in its order.

    Attributes:
        names: Names of the tensors.
        shapes: Shapes of the tensors.
        trainable: Number of trainable parameters, which come first in the vector.
        size: Length of the vector.
        shared: Further names of tensors with several names (tied weights), mapped to the name in ``names``.
        fixed: Tensors of the state dict that are not in the vector: frozen parameters and integer buffers.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    trainable: int
    size: int
    shared: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    fixed: Mapping[str, Tensor] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, module: nn.Module) -> "Layout":
        """Return the layout of ``module``."""
        entries = list(_entries(module))
        trainable = sum(p.numel() for _, p in _trainable(module))
        if trainable == 0:
            raise UserError(
                "the model has no trainable parameters; set requires_grad, or pass a model that has weights to train"
            )
        shared, fixed = _others(module, dict(entries))
        return cls(
            names=tuple(name for name, _ in entries),
            shapes=tuple(tuple(t.shape) for _, t in entries),
            trainable=trainable,
            size=sum(t.numel() for _, t in entries),
            shared=shared,
            fixed=fixed,
        )

    def named(self, w: Tensor) -> dict[str, Tensor]:
        """Return the tensors of the vector ``w`` by name, as views."""
        return dict(zip(self.names, self._cut(w), strict=True))

    def flat(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the vector of tensors by name; refuse tensors that do not match the model, or are not finite."""
        for name, shape in zip(self.names, self.shapes, strict=True):
            if name not in tensors:
                raise UserError(f"'{name}' is missing in the weights; they do not match the model")
            if tuple(tensors[name].shape) != shape:
                raise UserError(
                    f"the weights do not match the model: '{name}' has shape {tuple(tensors[name].shape)}, "
                    f"in the model {shape}"
                )
            if not tensors[name].is_floating_point():
                raise UserError(f"the weights do not match the model: '{name}' has the type {tensors[name].dtype}")
        self.check_base(tensors)
        w = torch.cat([tensors[name].detach().float().reshape(-1) for name in self.names])
        if not bool(torch.isfinite(w).all()):
            raise UserError("the model contains NaN or infinity; train it again with a lower learning rate")
        return w

    def check_base(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse tensors by name, frozen ones among them, that were trained on another frozen base."""
        for name, own in self.fixed.items():
            other = tensors.get(name)
            if own.is_floating_point() and other is not None and not torch.equal(own.cpu(), other.cpu().to(own.dtype)):
                raise UserError(
                    f"the weights do not match the model: its frozen parameter '{name}' has other values; build the "
                    "federation with the base that the weights were trained on"
                )

    def state_dict(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of :meth:`named` with everything else that ``load_state_dict`` needs."""
        found = {**tensors, **{name: tensors[other] for name, other in self.shared.items()}}
        return {**found, **{name: t.clone() for name, t in self.fixed.items()}}

    def frozen(self) -> str | None:
        """Return the SHA-256 of the tensors that are not in the vector; None if there are none."""
        return _sha256(self.fixed)

    def base(self) -> str | None:
        """Return the SHA-256 of the frozen parameters; None if there are none."""
        return _sha256({name: t for name, t in self.fixed.items() if t.is_floating_point()})

    def head(self) -> "Head":
        """Return the last dense layer: the last weight matrix in the vector, and the bias after it."""
        start, found = 0, None
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + int(torch.Size(shape).numel())
            if stop <= self.trainable and len(shape) == 2 and name.endswith("weight"):
                found = Head(name.rpartition(".")[0], start, stop, shape)
            elif found and start == found.stop and name == f"{found.layer}.bias".lstrip("."):
                found = Head(found.layer, found.start, stop, found.shape)
            start = stop
        if found is None:
            raise UserError("the model has no dense last layer (nn.Linear), which this method requires")
        return found

    def _cut(self, w: Tensor) -> list[Tensor]:
        """Return the tensors of the vector ``w`` in order, as views."""
        sizes = [int(torch.Size(shape).numel()) for shape in self.shapes]
        return [part.view(shape) for part, shape in zip(torch.split(w, sizes), self.shapes, strict=True)]


def _others(module: nn.Module, entries: Mapping[str, Tensor]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return ``shared`` and ``fixed`` of a :class:`Layout` whose vector holds ``entries``."""
    by_storage = {(t.data_ptr(), t.shape, t.stride()): name for name, t in entries.items()}
    shared, fixed = {}, {}
    for name, t in module.state_dict().items():
        if name in entries or not isinstance(t, Tensor):
            continue
        same = by_storage.get((t.data_ptr(), t.shape, t.stride())) if t.numel() else None
        if same is None:
            fixed[name] = t.clone() if not t.is_floating_point() else t
        else:
            shared[name] = same
    return shared, fixed


@dataclass(frozen=True)
class Head:
    """Last dense layer of a module.

    Attributes:
        layer: Name of the layer.
        start: Index of its first number in the vector.
        stop: Index after its last number.
        shape: Shape of its weight matrix (classes, features).
    """

    layer: str
    start: int
    stop: int
    shape: tuple[int, ...]

    def apply(self, features: Tensor, vector: Tensor) -> Tensor:
        """Return the logits of ``features``; ``vector`` is this layer's part of the vector of a model."""
        size = self.shape[0] * self.shape[1]
        return nn.functional.linear(
            features, vector[:size].view(self.shape), vector[size:] if len(vector) > size else None
        )


def features(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs of the last dense layer (samples, features), and the logits."""
    layer = module.get_submodule(Layout.of(module).head().layer)
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = module(x)
    finally:
        handle.remove()
    if len(seen) != 1 or seen[0].dim() != 2:
        raise UserError("the last dense layer of the model must be called once, with one vector per sample")
    return seen[0], logits


@torch.no_grad()
def reinitialised(module: nn.Module, seed: int) -> Tensor:
    """Return the vector of a newly initialised model of the same architecture.

    Parameters are reset by the ``reset_parameters`` of their layers, by the ``_init_weights`` of a Hugging Face model,
    and by the ``reset_lora_parameters`` of LoRA adapters. A parameter that none of them sets, as ``nn.Parameter`` in a
    module of the user's own, is drawn from the normal distribution with the mean and the standard deviation of its
    present values; one whose values are all equal, such as the zeros of an adapter, keeps them. Modules whose own
    parameters are all frozen keep their buffers: the running statistics of a pre-trained backbone belong to it.
    """
    kept = _frozen_buffers(module)
    before = {name: (float(p.double().mean()), float(p.double().std(correction=0))) for name, p in _trainable(module)}
    module = copy.deepcopy(module).cpu()  # so that the result does not depend on the device
    for p in trainable(module):
        p.fill_(torch.nan)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _reset(module)
        for name, p in _trainable(module):
            if bool(p.isnan().any()):
                mean, spread = before[name]
                p.copy_(mean + spread * torch.randn(p.shape) if spread > 0 else torch.full(p.shape, mean))
    for name, buffer in module.named_buffers():
        if name in kept:
            buffer.copy_(kept[name])
    return read(module)


def _frozen_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers, by name, of modules that have parameters of their own, none of which is trainable."""
    found: dict[str, Tensor] = {}
    for prefix, part in module.named_modules():
        own = list(part.parameters(recurse=False))
        if own and not any(p.requires_grad for p in own):
            found |= part.named_buffers(prefix, recurse=False)
    return found


def _reset(module: nn.Module) -> None:
    """Call every function of the modules that initialises their parameters."""
    parts = list(module.modules())
    for part in parts:
        if callable(reset := getattr(part, "reset_parameters", None)):
            reset()
    for part in parts:
        if callable(init := getattr(part, "_init_weights", None)) and hasattr(part, "config"):
            part.apply(init)
            break  # it initialises all modules below
    for part in parts:
        if callable(lora := getattr(part, "reset_lora_parameters", None)):
            for adapter in getattr(part, "lora_A", ()):
                lora(adapter, True)


def read(module: nn.Module) -> Tensor:
    """Return the vector of a module, as a copy."""
    return torch.cat([t.detach().float().reshape(-1) for _, t in _entries(module)])


@torch.no_grad()
def write(module: nn.Module, w: Tensor) -> None:
    """Copy the vector ``w`` into the module."""
    entries = list(_entries(module))
    if w.numel() != sum(t.numel() for _, t in entries):
        raise ValueError(f"a vector of {w.numel()} numbers does not match the model")
    offset = 0
    for _, t in entries:
        t.copy_(w[offset : offset + t.numel()].view(t.shape))
        offset += t.numel()


def activations(module: nn.Module, forward: Callable[[nn.Module, int], tuple[Any, Any]]) -> tuple[int, int]:
    """Return the bytes that a forward pass saves for its backward pass: a constant part, and a part per sample.

    They are measured in passes with two and with four samples; parameters and inputs are not counted.

    Args:
        module: The model.
        forward: Function of a model and a number of samples that returns inputs, and the model's outputs for them.
    """
    two, four = (_saved(module, forward, samples) for samples in (2, 4))
    return max(2 * two - four, 0), (four - two) // 2


def _saved(module: nn.Module, forward: Callable[[nn.Module, int], tuple[Any, Any]], samples: int) -> int:
    """Return the bytes that a forward pass of so many samples saves for its backward pass."""
    module = copy.deepcopy(module).eval()
    held: dict[int, Tensor] = {}

    def keep(t: Tensor) -> Tensor:
        if t.layout is torch.strided:
            held[t.untyped_storage().data_ptr()] = t
        return t

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        inputs, _ = forward(module, samples)
    known = {t.untyped_storage().data_ptr() for t in (*leaves(inputs), *module.parameters(), *module.buffers())}
    return sum(t.untyped_storage().nbytes() for where, t in held.items() if where not in known)


def trainable(module: nn.Module) -> list[Tensor]:
    """Return the trainable parameters, in the order of the vector."""
    return [p for _, p in _trainable(module)]


def read_gradient(module: nn.Module, layout: Layout) -> Tensor:
    """Return the accumulated gradients as a vector, zero for buffers and for parameters without a gradient."""
    gradient = torch.zeros(layout.size, device=next(module.parameters()).device)
    offset = 0
    for p in trainable(module):
        if p.grad is not None:
            gradient[offset : offset + p.numel()] = p.grad.reshape(-1)
        offset += p.numel()
    return gradient


@torch.no_grad()
def reset_counters(module: nn.Module, original: nn.Module) -> None:
    """Reset the integer buffers, which the vector does not hold, so that no answer depends on an earlier one."""
    for buffer, first in zip(module.buffers(), original.buffers(), strict=True):
        if not buffer.is_floating_point():
            buffer.copy_(first)
