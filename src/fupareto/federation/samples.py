"""Reading and checking of a client's data: from the forms in which users have them to :class:`Samples`."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate

from fupareto import documents
from fupareto.errors import UserError
from fupareto.federation.request import Splits
from fupareto.tasks import Task
from fupareto.tasks.samples import CLASSES, Collate, Held, Listed, Redrawn, Samples, parted, samples_of
from fupareto.tasks.trees import Tree, leaves, mapped, shapes, tensors, zipped

FORMS = (
    "a pair (inputs, targets) of tensors, a dict of tensors with 'labels', a torch Dataset or list of (input, target) "
    "pairs or of such dicts, or a DataLoader, whose data set is used"
)
TWICE = 8  # samples that are read twice, to see whether a data set draws them anew


def checked_names(clients: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of clients; refuse ids that could not be read again from the files of a run."""
    try:
        return documents.names(list(clients), "the client ids")
    except ValueError as error:
        raise UserError(str(error)) from error


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


def _whole(given: Any) -> Held:
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


def checked(
    client: str,
    splits: Mapping[str, Any],
    device: torch.device | None = None,
    task: Task = CLASSES,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Check a client's splits and return them as contiguous tensors, images channels-last.

    Args:
        client: Id of the client, for error messages.
        splits: Samples, or inputs and labels, by name; ``train`` is required.
        device: Device to move the tensors to; None for the current one.
        task: The task.
        dtype: Type of inputs that are not whole numbers.

    Raises:
        UserError: If the data cannot be used.
    """
    if "train" not in splits:
        raise UserError(f"client '{client}' has no 'train' data; give every client a train and a test set")
    found = {
        name: _converted(f"client '{client}', {name} data", samples_of(given), device, task, dtype)
        for name, given in splits.items()
    }
    first = found["train"].first(1000)
    own = task.settled(first.inputs, first.targets)
    return found if own == task else {name: samples.of(own) for name, samples in found.items()}


def _converted(where: str, samples: Samples, device: torch.device | None, task: Task, dtype: torch.dtype) -> Samples:
    if len(samples) < 1:
        raise UserError(f"{where}: no samples; leave the client out, or give it data")

    def change(tree: Tree) -> Tree:
        return mapped(lambda leaf: _laid_out(_typed(leaf, dtype).to(device)), tree)

    if isinstance(samples, Held):
        for leaf in leaves(samples.inputs):
            if not leaf.dim() or len(leaf) != len(samples):
                raise UserError(f"{where}: {len(leaf) if leaf.dim() else 1} inputs but {len(samples)} labels")
            if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
                raise UserError(f"{where}: inputs contain NaN or infinity; remove or replace them")
    try:
        found = samples.converted(change, device, task)
        found.first(2)
    except (ValueError, TypeError, RuntimeError, KeyError) as error:
        raise UserError(f"{where}: {error}") from error
    return found


def _typed(leaf: Tensor, dtype: torch.dtype) -> Tensor:
    """Return fractions in the type of the model; whole numbers stay as they are."""
    return leaf.to(dtype) if leaf.is_floating_point() else leaf


def _laid_out(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.contiguous()


def fitted(model: nn.Module, clients: Mapping[str, Splits]) -> dict[str, dict[str, Samples]]:
    """Check that the clients' data match each other and the model, with a batch of real samples of each client.

    Returns:
        The clients, with the number of outputs per sample. Whole numbers that the model takes as fractions only, such
        as pixels from 0 to 255, have become fractions.

    Raises:
        UserError: If they do not match.
    """
    found = {i: dict(splits) for i, splits in clients.items()}
    first, *_ = found.values()
    shape = shapes(first["train"].first(2).inputs)
    integers = all(not leaf.is_floating_point() for leaf in leaves(first["train"].first(2).inputs))
    if integers and _refused(model, first["train"]) and not _refused(model, _fractions(first["train"])):
        found = {i: {name: _fractions(s) for name, s in splits.items()} for i, splits in found.items()}
    seen: dict[str, int] = {}
    for i, splits in found.items():
        for name, samples in splits.items():
            splits[name] = _fitted(f"client '{i}', {name} data", model, samples, shape, seen)
    return found


def _fitted(where: str, model: nn.Module, samples: Samples, shape: Tree, seen: dict[str, int]) -> Samples:
    """Check one split: its shape, one forward pass per shape, and all of its targets."""
    batch = samples.first(2)
    own = shapes(batch.inputs)
    fractions = any(leaf.is_floating_point() for leaf in leaves(batch.inputs))
    if fractions and isinstance(samples, Held | Redrawn) and own != shape:
        raise UserError(f"{where}: samples of shape {own}, but other clients have {shape}")
    outputs = probe(model, samples, where)
    width = seen.setdefault(str(own), outputs[0].numel())
    try:
        samples.task.check(outputs, batch.targets)
        if isinstance(samples, Held):
            _check_all(samples, outputs)
    except (ValueError, RuntimeError, IndexError) as error:
        raise UserError(f"{where}: {error}") from error
    return _widened(samples, width)


def _widened(samples: Samples, width: int) -> Samples:
    if isinstance(samples, Redrawn):
        return dataclasses.replace(samples, width=width, still=_widened(samples.still, width))
    return dataclasses.replace(samples, width=width)


def _check_all(samples: Held, outputs: Tensor) -> None:
    """Check all targets against outputs of the right shape, without further forward passes."""
    if len(samples) > len(outputs) and outputs.numel() // len(outputs) * len(samples) <= 10_000_000:
        samples.task.check(outputs[:1].expand(len(samples), *outputs.shape[1:]), samples.held)


def probe(model: nn.Module, samples: Samples, where: str = "the data") -> Tensor:
    """Return the model's outputs for the first two samples; refuse a model that cannot take them."""
    batch = samples.first(2)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return samples.outputs(model, batch)
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        kinds = ", ".join(f"{tuple(leaf.shape[1:])} {leaf.dtype}" for leaf in leaves(batch.inputs))
        raise UserError(f"{where}: the model cannot take samples of shape {kinds}: {error}") from error
    finally:
        model.train(was_training)


def _refused(model: nn.Module, samples: Samples) -> bool:
    try:
        probe(model, samples)
    except UserError:
        return True
    return False


def _fractions(samples: Samples) -> Samples:
    return samples.converted(lambda tree: mapped(lambda leaf: leaf.float(), tree), None, samples.task)


def check_dtype(model: nn.Module) -> torch.dtype:
    """Return the type of the model's numbers; refuse models that are trained in half precision."""
    kinds = {p.dtype for p in model.parameters() if p.requires_grad}
    if half := kinds & {torch.float16, torch.bfloat16}:
        raise UserError(
            f"the model's trainable parameters are {half.pop()}, in which small steps vanish; call model.float() first "
            "(frozen parameters may stay as they are)"
        )
    if other := kinds - {torch.float32, torch.float64}:
        raise UserError(f"the model's trainable parameters are {other.pop()}; they must be float32 or float64")
    return torch.float64 if kinds == {torch.float64} else torch.float32
