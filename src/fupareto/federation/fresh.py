"""Newly initialised models of a federation, from the user's function or by default."""

from collections.abc import Callable
from itertools import zip_longest

from torch import Tensor, nn

from fupareto import parameters
from fupareto.errors import UserError
from fupareto.parameters import Layout


def fresh_model(model: nn.Module, layout: Layout, make: Callable[[int], nn.Module] | None, seed: int) -> Tensor:
    """Return the vector of a newly initialised model.

    Args:
        model: The federation's model, whose layers are reset if there is no ``make``.
        layout: Layout of the federation's model.
        make: The user's function of a seed that returns a newly initialised model.
        seed: Seed of the initialisation.

    Raises:
        UserError: If the model of ``make`` does not have the layout of the federation's model.
    """
    if make is None:
        return parameters.reinitialised(model, seed)
    made = make(seed)
    if not isinstance(made, nn.Module):
        raise UserError(f"fresh must return an nn.Module, not a {type(made).__name__}")
    if (found := Layout.of(made)) != layout:
        raise UserError(
            f"the model that fresh returns does not match the federation's model: {_difference(found, layout)}. Build "
            "it as the federation's model, and freeze the same parameters"
        )
    return parameters.read(made)


def _difference(found: Layout, wanted: Layout) -> str:
    """Return in words the first difference between the vectors of two layouts."""
    entries, others = (list(zip(x.names, x.shapes, strict=True)) for x in (found, wanted))
    for entry, other in zip_longest(entries, others):
        if entry != other:
            return f"it has {_words(entry)} where that has {_words(other)}"
    return f"it has {found.trainable} trainable numbers, that has {wanted.trainable}"


def _words(entry: tuple[str, tuple[int, ...]] | None) -> str:
    return "nothing more" if entry is None else f"'{entry[0]}' of shape {entry[1]}"
