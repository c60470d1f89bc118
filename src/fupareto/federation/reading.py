"""Reading of a client's data: from the forms in which users have them to :class:`Samples`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate

from fupareto.errors import UserError
from fupareto.tasks.samples import CLASSES, Collate, Held, Listed, Redrawn, Samples, parted
from fupareto.tasks.trees import leaves, tensors, zipped

FORMS = (
    "a pair (inputs, targets) of tensors, a dict of tensors with 'labels', a torch Dataset or list of (input, target) "
    "pairs or of such dicts, or a DataLoader, whose data set is used"
)
TWICE = 8  # samples that are read twice, to see whether a data set draws them anew


def splits_of(client: str, held: Any, collate: Collate | None = None) -> dict[str, Samples]:
    """Return a client's data as splits.

    Args:
        client: Id of the client, for error messages.
        held: A train and a test set, or a mapping of sets by name.
        collate: Function that makes a batch of a list of samples, where these differ in length.
    """
    named = held
    if not (isinstance(held, Mapping) and "train" in held) and not _by_name(held):
        if not isinstance(held, tuple | list) or len(held) != 2:
            raise UserError(
                f"client '{client}' must have a train and a test set, or sets by name such as {{'train': …}}; each set "
                f"is {FORMS}"
            )
        named = {"train": held[0], "test": held[1]}
    found = {}
    for name, samples in named.items():
        try:
            found[str(name)] = _read(samples, collate)
        except (TypeError, ValueError, RuntimeError, KeyError, IndexError) as error:
            raise UserError(
                f"client '{client}', {name} data: {error}. Every client must have a train and a test set, each of them "
                f"{FORMS}"
            ) from error
    return found


def _by_name(held: Any) -> bool:
    return isinstance(held, Mapping) and not any(isinstance(part, Tensor) for part in held.values())


def _read(given: Any, collate: Collate | None) -> Samples:
    """Return one set as samples."""
    if isinstance(given, Samples):
        return given
    if isinstance(given, DataLoader):
        own: Any = given.collate_fn
        collate = collate or (None if own is default_collate else own)
        given = given.dataset
    if isinstance(given, TensorDataset) and collate is None:
        given = given.tensors if len(given.tensors) > 1 else given.tensors[0]
        return _whole(given)
    if collate is None and _is_whole(given):
        return _whole(given)
    given = _rows(given)
    read: Callable[[], list[Any]]
    if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        read = lambda: [given[k] for k in range(len(given))]  # noqa: E731
    elif hasattr(given, "__iter__"):
        read = lambda: list(given)  # noqa: E731
    else:
        raise TypeError(f"a {type(given).__name__} cannot be read sample by sample")
    still = _stacked(read(), collate)
    if isinstance(given, list | tuple) or not _draws(given):
        return still
    return Redrawn(CLASSES, 0, still, lambda: _stacked(read(), collate))


def _is_whole(given: Any) -> bool:
    """Return whether a set is given as tensors with a leading dimension, not sample by sample."""
    if isinstance(given, Mapping):
        return all(hasattr(part, "shape") for part in given.values())
    if hasattr(given, "shape"):
        return True
    if not isinstance(given, tuple | list) or len(given) != 2:
        return False
    inputs, targets = given
    if hasattr(inputs, "shape"):
        return True
    arrays = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else ()
    lengths = {len(part) for part in arrays if hasattr(part, "shape") and part.ndim}
    return hasattr(targets, "shape") and targets.ndim > 0 and lengths == {len(targets)}


def _rows(given: Any) -> Any:
    """Return columns as a list of samples: a pair (list of inputs, targets), or a dict of lists; others as they are."""
    if isinstance(given, Mapping):
        lengths = {len(part) for part in given.values() if isinstance(part, list) or hasattr(part, "shape")}
        if len(lengths) != 1 or not all(hasattr(part, "__len__") for part in given.values()):
            raise ValueError("the parts of a dict must be tensors, arrays or lists with one entry per sample")
        return [{name: part[k] for name, part in given.items()} for k in range(lengths.pop())]
    if not isinstance(given, tuple | list) or len(given) != 2:
        return given
    inputs, targets = given
    alike = isinstance(inputs, list) and len({type(part) for part in inputs}) == 1  # not one sample [input, target]
    listed = alike and (isinstance(targets, list) or hasattr(targets, "shape"))
    return list(zip(inputs, targets, strict=True)) if listed and len(inputs) == len(targets) else given


def _whole(given: Any) -> Held:
    if hasattr(given, "shape") and torch.as_tensor(given).is_floating_point():
        raise ValueError(
            "inputs without targets; a client is ((train inputs, train targets), (test inputs, test targets))"
        )
    inputs, targets = parted(given) if not hasattr(given, "shape") else (given, given)
    return Held(CLASSES, 0, tensors(inputs), torch.as_tensor(targets))


def _stacked(items: Sequence[Any], collate: Collate | None) -> Samples:
    """Return samples as stacked tensors; with a collate function, as they are."""
    if collate is not None:
        return Listed(CLASSES, 0, items, collate)
    if not items:
        return Held(CLASSES, 0, torch.empty(0), torch.empty(0))
    pairs = [parted(item) for item in items]
    inputs = zipped(_stack, [tensors(x) for x, _ in pairs])
    return Held(CLASSES, 0, inputs, _stack([tensors(y) for _, y in pairs]))


def _stack(parts: list[Tensor]) -> Tensor:
    if len(different := sorted({tuple(part.shape) for part in parts})) > 1:
        raise ValueError(
            f"samples differ in shape, {different[0]} and {different[-1]}; bring them to one shape, or pass "
            "collate=, a function that makes a batch of a list of samples"
        )
    return torch.stack(parts)


def _draws(given: Any) -> bool:
    """Return whether a data set gives another sample when it is asked again."""
    if isinstance(given, Subset) and isinstance(given.dataset, TensorDataset):
        return False
    try:
        first, second = (list(_some(given)) for _ in range(2))
    except Exception:  # a source that can be read once only draws nothing anew
        return False
    return not all(map(_same, first, second))


def _some(given: Any) -> Iterator[Any]:
    if hasattr(given, "__getitem__"):
        return (given[k] for k in range(min(TWICE, len(given))))
    return (item for item, _ in zip(given, range(TWICE), strict=False))


def _same(a: Any, b: Any) -> bool:
    ours, theirs = (list(leaves(tensors(sample))) for sample in (a, b))
    return all(map(torch.equal, ours, theirs))
