"""Structures of tensors: a tensor, or a tuple or dict of them."""

import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Tree = Any  # a tensor, or a tuple or dict of trees


def leaves(tree: Tree) -> Iterator[Tensor]:
    """Yield the tensors of a structure, in order."""
    if isinstance(tree, Mapping):
        for part in tree.values():
            yield from leaves(part)
    elif isinstance(tree, tuple | list):
        for part in tree:
            yield from leaves(part)
    elif isinstance(tree, Tensor):
        yield tree


def mapped(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Return the structure with every leaf replaced by the function of it; mappings become dicts, lists tuples."""
    if isinstance(tree, Mapping):
        return {str(name): mapped(function, part) for name, part in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(mapped(function, part) for part in tree)
    return function(tree)


def zipped(function: Callable[[list[Any]], Any], trees: list[Tree]) -> Tree:
    """Return one structure whose leaves are the function of the corresponding leaves of several equal structures."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {str(name): zipped(function, [tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple | list):
        if any(len(tree) != len(first) for tree in trees):
            raise ValueError("samples have different numbers of parts")
        return tuple(zipped(function, [tree[k] for tree in trees]) for k in range(len(first)))
    return function(trees)


def shapes(tree: Tree) -> Tree:
    """Return the structure with shapes in place of tensors, without their leading dimension."""
    return mapped(lambda leaf: tuple(leaf.shape[1:]), tree)


def count(tree: Tree) -> int:
    """Return how many numbers one sample of the structure has."""
    return sum(leaf[0].numel() if len(leaf) else 0 for leaf in leaves(tree))


def tensors(part: Any) -> Tree:
    """Return a structure with numbers, arrays and lists of numbers as tensors."""
    if isinstance(part, Mapping):
        return {str(name): tensors(value) for name, value in part.items()}
    if isinstance(part, tuple) or (isinstance(part, list) and any(isinstance(p, Tensor | Mapping) for p in part)):
        return tuple(tensors(value) for value in part)
    if isinstance(part, str | bytes):
        raise ValueError(f"a sample has the text {part[:20]!r}; turn text into token ids first")
    try:
        return torch.as_tensor(part)
    except (TypeError, ValueError, RuntimeError) as error:
        shown = f"{type(part).__name__} {reprlib.repr(part)}"
        raise ValueError(f"{shown} is no number and no array of numbers ({error}); turn text into token ids") from error
