"""Another device, without one: tensors that say they are elsewhere and compute here.

PyTorch's ``meta`` device has shapes and no numbers. Here its tensors have numbers too, so that whole runs are possible,
and what a GPU would not allow raises: computing with tensors of two devices, or reading one's memory from here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

THERE = torch.device("meta")
aten = torch.ops.aten
CROSSING = {aten._to_copy.default, aten.copy_.default}


class Elsewhere(Tensor):
    """A tensor of the other device; ``here`` is what it holds."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "Elsewhere":
        made: Elsewhere = Tensor._make_wrapper_subclass(
            cls, here.size(), strides=here.stride(), dtype=here.dtype, device=THERE, requires_grad=here.requires_grad
        )
        made.here = here.detach()
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Elsewhere({self.here})"

    def tolist(self) -> Any:
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return compute(func, args, kwargs or {})


class _Device(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees also what has no tensor of the other device among its arguments: ``torch.zeros(3, device=…)``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves = tree_flatten((args, kwargs))[0]
    far = [t for t in leaves if isinstance(t, Elsewhere)]
    near = [t for t in leaves if isinstance(t, Tensor) and t.device != THERE and t.dim()]
    if far and near and func not in CROSSING:
        raise RuntimeError(f"{func} was given tensors of two devices")
    device = kwargs.get("device")
    there = torch.device(device) == THERE if device is not None else bool(far)
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inner = tree_map(_brought, (args, kwargs))
    found = func(*inner[0], **inner[1])
    if func is aten.copy_.default:
        return args[0]
    made = tree_map(lambda t: Elsewhere(t) if isinstance(t, Tensor) else t, found) if there else found
    if not (there and far):
        return made
    return return_and_correct_aliasing(func, args, kwargs, made)  # type: ignore[no-untyped-call]


def _brought(leaf: Any) -> Any:
    if isinstance(leaf, Elsewhere):
        return leaf.here
    if isinstance(leaf, Tensor) and leaf.device == THERE:  # torch.tensor([], device=…) comes without being asked for
        assert not leaf.numel()
        return torch.empty(leaf.shape, dtype=leaf.dtype)
    return leaf


@contextmanager
def another_device() -> Iterator[torch.device]:
    """Make the device usable, in this thread."""
    with _Device():  # type: ignore[no-untyped-call]
        yield THERE
