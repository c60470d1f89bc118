"""Calls of a user's model: how inputs are passed to it, and where its outputs are."""

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from fupareto.errors import UserError
from fupareto.tasks.trees import Tree

OUTPUTS = ("logits", "out")  # attributes or keys of the outputs, as Hugging Face and torchvision name them


def call(module: nn.Module, inputs: Tree) -> Tensor:
    """Return the outputs of a model for a batch.

    A tensor is the only argument. The parts of a dict are keyword arguments where the model's ``forward`` has
    parameters of these names, and those of a tuple are positional arguments where it has as many; otherwise the dict or
    tuple is the only argument. The model returns a tensor; a tuple, whose first tensor with a batch dimension is taken;
    or an object or dict with ``logits`` or ``out``.
    """
    if isinstance(inputs, Tensor):
        found = module(inputs)
    elif isinstance(inputs, Mapping):
        names = _accepted(type(module).forward, tuple(inputs))
        found = module(inputs) if names is None else module(**{name: inputs[name] for name in names})
    else:
        found = module(*inputs) if _takes(type(module).forward, len(inputs)) else module(inputs)
    return found if isinstance(found, Tensor) else output_of(found)


def output_of(found: Any) -> Tensor:
    """Return the outputs in what a model returned."""
    if isinstance(found, Tensor):
        return found
    for name in OUTPUTS:
        named = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        if isinstance(named, Tensor):
            return named
    if isinstance(found, tuple | list):
        for part in found:
            if isinstance(part, Tensor) and part.dim() > 0:  # a number without dimensions is a loss
                return part
    raise UserError(
        f"the model returned a {type(found).__name__}; it must return a tensor, a tuple whose first tensor is the "
        f"outputs, or an object or dict with {' or '.join(OUTPUTS)}"
    )


@lru_cache(maxsize=256)
def _parameters(forward: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(forward).parameters.values())[1:]


@lru_cache(maxsize=256)
def _accepted(forward: Callable[..., Any], names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return which parts of a dict are keyword arguments of a model; None if the dict is its only argument."""
    own = _parameters(forward)
    known = {p.name for p in own if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    missing = [p for p in own if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in names]
    if any(p.kind is p.VAR_KEYWORD for p in own) and not missing:
        return names
    chosen = tuple(name for name in names if name in known)
    return chosen if chosen and not missing else None


@lru_cache(maxsize=256)
def _takes(forward: Callable[..., Any], count: int) -> bool:
    """Return whether a model has as many positional parameters."""
    own = _parameters(forward)
    positional = [p for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return any(p.kind is p.VAR_POSITIONAL for p in own) or len(positional) >= max(count, 2) or count == 1
