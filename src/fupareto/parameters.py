"""A module as one flat float32 vector and back: the only place that knows nn.Module internals.

The vector holds the trainable parameters in ``named_parameters`` order, then the floating-point buffers
(running statistics). A buffer's gradient is zero by definition, so whatever moves along gradients leaves
buffers at their value in the initial model, while an average of local models averages them.
Frozen parameters and integer buffers are part of the module that every client already has, not of the vector.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fupareto.errors import UserError


def _trainable(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((name, p) for name, p in module.named_parameters() if p.requires_grad)


def _entries(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from _trainable(module)
    buffers = [(name, b) for name, b in module.named_buffers() if b.is_floating_point()]
    if buffers:  # those that a state dict has; others (a causal mask, say) are part of the code
        kept = module.state_dict().keys()
        yield from ((name, b) for name, b in buffers if name in kept)


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a module's entries, in the order of the flat vector.

    Attributes:
        names: Of the entries.
        shapes: Of the entries.
        trainable: How many leading numbers of the vector have a gradient.
        size: Numbers of the vector.
        shared: Further names of entries that the module has under several (tied weights).
        fixed: What else a state dict has: frozen parameters and integer buffers, as the module has them.
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
                "the model has no trainable parameter; check requires_grad, or pass a model with weights to learn"
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
        """Cut ``w`` into tensors by name, as a state dict has them."""
        return dict(zip(self.names, self._cut(w), strict=True))

    def flat(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Join the tensors of :meth:`named` again; a missing name or a wrong shape is the user's error."""
        for name, shape in zip(self.names, self.shapes, strict=True):
            if name not in tensors:
                raise UserError(f"the weights lack '{name}', which the model has; was another model saved?")
            if tuple(tensors[name].shape) != shape:
                raise UserError(
                    f"the weights of '{name}' have shape {tuple(tensors[name].shape)}, the model's have {shape}"
                )
        return torch.cat([tensors[name].detach().float().reshape(-1) for name in self.names])

    def state_dict(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of :meth:`named` with everything else that ``load_state_dict`` wants."""
        found = {**tensors, **{name: tensors[other] for name, other in self.shared.items()}}
        return {**found, **{name: t.clone() for name, t in self.fixed.items()}}

    def head(self) -> "Head":
        """Return where the last dense layer lies in the vector: the last matrix, and the bias behind it."""
        start, found = 0, None
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + int(torch.Size(shape).numel())
            if stop <= self.trainable and len(shape) == 2 and name.endswith("weight"):
                found = Head(name.rpartition(".")[0], start, stop, shape)
            elif found and start == found.stop and name == f"{found.layer}.bias".lstrip("."):
                found = Head(found.layer, found.start, stop, found.shape)
            start = stop
        if found is None:
            raise UserError("the model has no dense last layer (nn.Linear), which this method works on")
        return found

    def _cut(self, w: Tensor) -> list[Tensor]:
        sizes = [int(torch.Size(shape).numel()) for shape in self.shapes]
        return [part.view(shape) for part, shape in zip(torch.split(w, sizes), self.shapes, strict=True)]


def _others(module: nn.Module, entries: Mapping[str, Tensor]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return what else a state dict has: other names of the entries, and tensors that are not in the vector."""
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
    """The last dense layer: its name, its place in the vector, and the shape of its matrix (classes, features)."""

    layer: str
    start: int
    stop: int
    shape: tuple[int, ...]

    def apply(self, features: Tensor, vector: Tensor) -> Tensor:
        """Return the logits of ``features`` under this layer's part of a model's vector."""
        size = self.shape[0] * self.shape[1]
        return nn.functional.linear(
            features, vector[:size].view(self.shape), vector[size:] if len(vector) > size else None
        )


def features(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what enters the last dense layer, and the logits."""
    layer = module.get_submodule(Layout.of(module).head().layer)
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = module(x)
    finally:
        handle.remove()
    if len(seen) != 1 or seen[0].dim() != 2:
        raise UserError("the model's last dense layer must see one vector per sample, once")
    return seen[0], logits


@torch.no_grad()
def reinitialised(module: nn.Module, seed: int) -> Tensor:
    """Return the vector of a freshly initialised model of the same architecture.

    PyTorch's layers know how to reset their parameters. A parameter that no layer resets is refused: left at its
    trained value, it would call a trained model fresh.
    """
    module = copy.deepcopy(module).cpu()  # the same new model, wherever the old one is
    for p in trainable(module):
        p.fill_(torch.nan)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for part in module.modules():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()
    if left := [name for name, p in _trainable(module) if bool(p.isnan().any())]:
        raise UserError(
            f"a fresh model cannot be made: no reset_parameters() sets {', '.join(left)}; add that method to the "
            "module, or pass fresh= (a function of a seed that returns a new model) to simulate"
        )
    return read(module)


def read(module: nn.Module) -> Tensor:
    """Return a copy of the module's vector."""
    return torch.cat([t.detach().float().reshape(-1) for _, t in _entries(module)])


@torch.no_grad()
def write(module: nn.Module, w: Tensor) -> None:
    """Put the vector into the module."""
    entries = list(_entries(module))
    if w.numel() != sum(t.numel() for _, t in entries):
        raise ValueError(f"a vector of {w.numel()} entries does not fit the model")
    offset = 0
    for _, t in entries:
        t.copy_(w[offset : offset + t.numel()].view(t.shape))
        offset += t.numel()


def activations(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the bytes that a forward pass leaves for its backward pass: whatever the batch, and for every sample.

    Seen in passes with two and with four samples; parameters and inputs, which are there anyway, are not counted.
    """
    two, four = (_saved(module, shape, samples) for samples in (2, 4))
    return max(2 * two - four, 0), (four - two) // 2


def _saved(module: nn.Module, shape: tuple[int, ...], samples: int) -> int:
    module = copy.deepcopy(module).eval()
    x = torch.zeros(samples, *shape, device=next(module.parameters()).device)
    known = {t.untyped_storage().data_ptr() for t in (x, *module.parameters(), *module.buffers())}
    held: dict[int, Tensor] = {}

    def keep(t: Tensor) -> Tensor:
        if t.layout is torch.strided:
            held[t.untyped_storage().data_ptr()] = t
        return t

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        _ = module(x)
    return sum(t.untyped_storage().nbytes() for where, t in held.items() if where not in known)


def trainable(module: nn.Module) -> list[Tensor]:
    """Return the parameters that have a gradient, in the order of the vector."""
    return [p for _, p in _trainable(module)]


def read_gradient(module: nn.Module, layout: Layout) -> Tensor:
    """Return the accumulated gradients as a vector; entries without one (buffers, unused weights) are zero."""
    gradient = torch.zeros(layout.size, device=next(module.parameters()).device)
    offset = 0
    for p in trainable(module):
        if p.grad is not None:
            gradient[offset : offset + p.numel()] = p.grad.reshape(-1)
        offset += p.numel()
    return gradient


@torch.no_grad()
def reset_counters(module: nn.Module, original: nn.Module) -> None:
    """Set what the vector does not carry (integer buffers) back, so that no answer depends on an earlier one."""
    for mine, theirs in zip(module.buffers(), original.buffers(), strict=True):
        if not mine.is_floating_point():
            mine.copy_(theirs)
