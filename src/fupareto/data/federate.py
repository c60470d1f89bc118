"""Which tensors does each client hold, and which of them carry a backdoor?"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fupareto.data.backdoor import Trigger, poison, shift
from fupareto.data.partition import split
from fupareto.data.sources import Dataset
from fupareto.errors import UserError
from fupareto.randomness import stream


@dataclass(frozen=True, eq=False)
class ClientData:
    """What one client holds, by the name of the split.

    ``train`` and ``test`` always. A client that carries a backdoor also has ``trigger`` (every input
    triggered, labels shifted: the attack's success is the accuracy on it) and ``clean`` (its training inputs
    as they were). Once it is to be forgotten it has what a membership attack compares: ``member``, its training
    data as they were trained on, and ``nonmember``, its test data marked in the same way; ``spare`` is the
    latter in the form of the forgetting objective.
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
    """Split every part locally and put the backdoor into the ``marked`` clients; ids are "0", "1", ...

    A marked client's training data are poisoned in ``portion``, and wholly once it is in ``forget``: what is
    to be forgotten is the mark, so the forgetting objective sees nothing else. Split and trigger are drawn
    from streams of the client's id, so the calls before and after the request agree on them.
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
            trigger = Trigger.draw(stream(seed, "trigger", name))
            share = 1.0 if name in forget else portion
            shown = splits[asr_split]
            splits["train"] = poison(*train, trigger, data.classes, share, batch_size)
            splits["trigger"] = trigger.stamp(shown[0]), shift(shown[1], data.classes)
            splits["clean"] = train
            if name in forget:
                splits["member"] = poison(*train, trigger, data.classes, portion, batch_size)
                splits["nonmember"] = poison(*test, trigger, data.classes, portion, batch_size)
                splits["spare"] = poison(*test, trigger, data.classes, share, batch_size)
        federation[name] = ClientData({key: _laid_out(x, y) for key, (x, y) in splits.items()})
    return federation


def _check_ids(what: str, ids: Collection[str], count: int) -> None:
    known = {str(number) for number in range(count)}
    if unknown := [name for name in ids if name not in known]:
        raise UserError(
            f"{what} names {', '.join(map(repr, unknown))}, but the clients are "
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
    """Lay images out channels-last, once and for all: convolutions on a CPU are faster that way."""
    layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
    return x.contiguous(memory_format=layout), y.contiguous()
