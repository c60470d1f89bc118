"""A user's own loss: a function or a class, given as such or as ``package.module:name``.

Losses of torch are asked for one value per sample (``reduction="none"``), also where their default is a mean.
"""

import copy
import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from torch import Tensor, nn

from fupareto.errors import UserError
from fupareto.tasks.code import imported

Criterion = str | Callable[..., Any] | None  # a class is a function that makes the loss
REDUCTION = "reduction"  # the option by which losses of torch say how they are averaged


def label(criterion: Criterion) -> str:
    """Return the name of a loss, ``package.module:name``; that of its class for an object."""
    if criterion is None or isinstance(criterion, str):
        return criterion or ""
    named = criterion if hasattr(criterion, "__qualname__") else type(criterion)
    return f"{named.__module__}:{named.__qualname__}"


def per_sample(criterion: Criterion, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of every sample, the mean over what else the loss distinguishes.

    Raises:
        ValueError: If the loss does not return a value per sample.
    """
    found = function_of(criterion)(outputs, targets)
    if not isinstance(found, Tensor) or found.shape[:1] != (len(targets),):
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(
            f"the criterion {label(criterion)} returned {what} for {len(targets)} samples; it must return one loss per "
            "sample, without a mean over them"
        )
    return found.flatten(1).mean(1) if found.dim() > 1 else found


@lru_cache(maxsize=64)
def function_of(criterion: Criterion) -> Callable[[Tensor, Tensor], Any]:
    """Return the function (outputs, targets) that a loss stands for, without a mean over samples."""
    given: Any = imported(criterion, "criterion") if isinstance(criterion, str) else criterion
    if not callable(given):
        raise UserError(f"criterion {label(criterion)} must be a function (outputs, targets), a class, or its name")
    if isinstance(given, nn.Module):
        if hasattr(given, REDUCTION):
            given = copy.copy(given)
            given.reduction = "none"
        return partial(given)
    plain = {REDUCTION: "none"} if _reduces(given) else {}
    if not isinstance(given, type):
        return partial(given, **plain)
    try:
        made: Callable[[Tensor, Tensor], Any] = given(**plain)
    except Exception as error:  # a user's class may raise anything
        raise UserError(f"criterion {label(criterion)} could not be made: {type(error).__name__}: {error}") from error
    return made


def _reduces(function: Callable[..., Any]) -> bool:
    try:
        return REDUCTION in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function without a signature
        return False
