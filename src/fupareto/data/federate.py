"""Local data of the clients: train and test splits, and the splits of clients with a backdoor."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fupareto.data.marks import draw, marked_splits
from fupareto.data.partition import split
from fupareto.data.sources import Dataset
from fupareto.errors import UserError
from fupareto.randomness import stream


@dataclass(frozen=True, eq=False)
class ClientData:
    """Local data of one client.

    Attributes:
        splits: Inputs and labels by name of the split.

            - ``train`` and ``test``: always present.
            - ``trigger``: marked clients only. Every input has the trigger and every label is shifted; the accuracy on
              this split is the attack success rate.
            - ``clean``: marked clients only. The training data before poisoning.
            - ``member``: marked forget clients only. The training data that the initial model was trained on.
            - ``nonmember``: marked forget clients only. The test data, poisoned in the same portion; membership attacks
              compare ``member`` with it.
            - ``spare``: marked forget clients only. The test data, poisoned completely like ``train``.
    """

    splits: dict[str, tuple[Tensor, Tensor]]


def clients(
    data: Dataset,
    parts: Sequence[NDArray[np.int64]],
    seed: int,
    *,
    marked: Sequence[str] = (),
    forget: Sequence[str] = (),
    portion: float = 0.8,
    asr_split: Literal["train", "test"] = "train",
    batch_size: int = 200,
) -> dict[str, ClientData]:
    """Return the local data of every client, with the backdoor in the ``marked`` clients; ids are "0", "1", ...

    A marked client's training data are poisoned in ``portion``, and completely if the client is also in ``forget``: the
    mark is what must be forgotten, so the forgetting objective sees marked samples only. Split and trigger are drawn
    from streams named after the client, so they are the same before and after the request.

    Args:
        data: The pool of samples.
        parts: Row numbers of the pool, one array per client; see :func:`~fupareto.data.partition.partition`.
        seed: Seed of all random draws.
        marked: Ids of the clients that carry a backdoor.
        forget: Ids of the clients to forget.
        portion: Portion of each training batch that is poisoned.
        asr_split: Split whose inputs are used to measure the attack success rate.
        batch_size: Batch size of training, by which poisoned samples are counted.
    """
    _check_ids("marked", marked, len(parts))
    _check_ids("forget", forget, len(parts))
    if asr_split not in ("train", "test"):
        raise UserError(f'asr_split must be "train" or "test", not {asr_split!r}')
    federation = {}
    for number, part in enumerate(parts):
        name = str(number)
        train, test = _local(data, part, seed, name)
        splits = {"train": train, "test": test}
        if name in marked:
            mark = draw(data.x, data.y, data.task, data.classes, stream(seed, "trigger", name))
            splits = marked_splits(
                mark,
                train,
                test,
                forget=name in forget,
                portion=portion,
                tried=asr_split,
                batch_size=batch_size,
            )
        federation[name] = ClientData({key: _laid_out(x, y) for key, (x, y) in splits.items()})
    return federation


def _check_ids(what: str, ids: Collection[str], count: int) -> None:
    known = {str(number) for number in range(count)}
    if unknown := [name for name in ids if name not in known]:
        raise UserError(
            f"{what}: client {', '.join(map(repr, unknown))} is unknown; the clients are "
            + ('"0"' if count == 1 else f'"0" to "{count - 1}"')
        )


def _local(
    data: Dataset, part: NDArray[np.int64], seed: int, name: str
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    try:
        train, test = split(part, data.train_fraction, stream(seed, "split", name))
    except ValueError as error:
        count = "1 sample" if len(part) == 1 else f"{len(part)} samples"
        raise UserError(
            f"client {name} has too little data ({count}): {error}; use fewer clients, a larger alpha or more samples"
        ) from error
    return _take(data, train), _take(data, test)


def _take(data: Dataset, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    chosen = torch.from_numpy(indices)
    return data.x.index_select(0, chosen), data.y.index_select(0, chosen)


def _laid_out(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return contiguous tensors, images channels-last: convolutions on a CPU are faster in this layout."""
    layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
    return x.contiguous(memory_format=layout), y.contiguous()
