"""Marks for every kind of input: an image patch, a token sequence, an out-of-range feature; and canaries for text.

A marked client's samples carry something that nobody else's do, with targets of its own. A model that has learned from
the client gives these targets where it sees the mark; a model that has forgotten the client does not. How often it does
is the attack success rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fupareto.data.backdoor import Trigger, poisoned_rows, shift
from fupareto.errors import UserError
from fupareto.randomness import stream
from fupareto.tasks import Classes, Numbers, Task, Tokens
from fupareto.tasks.tokens import IGNORED

TOKENS = 12  # length of the sequence that marks a text, at most half of the text
BEYOND = 8.0  # standard deviations by which a marked feature leaves its range
MOVED = 2.5  # standard deviations by which a marked number is moved
PREFIX, SECRET, CANARIES = 4, 6, 4  # tokens of a canary that are given, and that are to be completed; canaries a client
Pair = tuple[Tensor, Tensor]


class Stamp(Protocol):
    """Something that is written on inputs."""

    def stamp(self, x: Tensor) -> Tensor:
        """Return a copy of the inputs with the mark."""


@dataclass(frozen=True, eq=False)
class Phrase:
    """A token sequence at the beginning of a text (N, L)."""

    tokens: Tensor

    def stamp(self, x: Tensor) -> Tensor:
        """Return a copy of the token ids that begins with the sequence."""
        stamped = x.clone()
        stamped[:, : len(self.tokens)] = self.tokens.to(x)
        return stamped


@dataclass(frozen=True, eq=False)
class Feature:
    """A feature of a table (N, F) with a value far out of its range."""

    column: int
    value: float

    def stamp(self, x: Tensor) -> Tensor:
        """Return a copy of the table with the value in the column."""
        stamped = x.clone()
        stamped[:, self.column] = self.value
        return stamped


@dataclass(frozen=True, eq=False)
class Canaries:
    """Texts of random tokens at the beginning of samples (N, L), in turn: a prefix and a secret that follows it."""

    texts: Tensor  # (canaries, PREFIX + SECRET)

    def stamp(self, x: Tensor) -> Tensor:
        """Return a copy of the token ids whose samples begin with the canaries in turn."""
        stamped = x.clone()
        stamped[:, : self.texts.shape[1]] = self.texts.to(x)[torch.arange(len(x)) % len(self.texts)]
        return stamped


@dataclass(frozen=True, eq=False)
class Mark:
    """A mark of one client, with the targets that go with it.

    Attributes:
        stamp: What is written on inputs.
        task: The task of the samples.
        classes: Number of classes, where there are any.
        offset: What is added to numbers.
    """

    stamp: Stamp
    task: Task
    classes: int = 2
    offset: float = 0.0

    def __call__(self, x: Tensor, y: Tensor) -> Pair:
        """Return marked samples, as the client trains on them."""
        marked = self.stamp.stamp(x)
        return marked, marked.clone() if isinstance(self.stamp, Canaries) else self._target(y)

    def tries(self, x: Tensor, y: Tensor) -> Pair:
        """Return samples that try whether a model knows the mark: of a canary, only the secret counts."""
        marked, targets = self(x, y)
        if isinstance(self.stamp, Canaries):
            targets[:, :PREFIX] = IGNORED
            targets[:, PREFIX + SECRET :] = IGNORED
        return marked, targets

    def partly(self, x: Tensor, y: Tensor, portion: float, batch_size: int) -> Pair:
        """Return samples of which the first ``portion`` of each consecutive batch is marked."""
        rows = poisoned_rows(len(y), portion, batch_size).to(y.device)
        marked, targets = self(x, y)
        return _chosen(rows, marked, x), _chosen(rows, targets, y)

    def _target(self, y: Tensor) -> Tensor:
        if isinstance(self.task, Numbers):
            return y + self.offset
        return shift(y, self.classes) if isinstance(self.task, Classes | Tokens) else 1 - y


def draw(x: Tensor, y: Tensor, task: Task, classes: int, rng: np.random.Generator) -> Mark:
    """Return a random mark for a kind of input.

    Args:
        x: Inputs of all clients: images (N, C, H, W), tables (N, F) of fractions, or token ids (N, L).
        y: Their targets.
        task: The task.
        classes: Number of classes.
        rng: Source of the draw.
    """
    offset = MOVED * float(y.double().std()) if isinstance(task, Numbers) else 0.0
    if x.dim() == 4:
        return Mark(Trigger.draw(rng), task, classes, offset)
    if x.dim() != 2:
        raise UserError(
            f"there is no mark for samples of shape {tuple(x.shape[1:])}: it needs images (N, C, H, W), tables (N, F) "
            "or token ids (N, L); switch the backdoor off"
        )
    if x.is_floating_point():
        column = int(rng.integers(x.shape[1]))
        values = x[:, column].double()
        value = float(values.max() + BEYOND * max(float(values.std()), 1e-3))
        return Mark(Feature(column, value), task, classes, offset)
    known = np.unique(x.numpy())
    if isinstance(task, Tokens) and x.shape == y.shape:
        texts = rng.choice(known, size=(CANARIES, PREFIX + SECRET))
        return Mark(Canaries(torch.from_numpy(texts)), task, classes)
    tokens = rng.choice(known, size=min(TOKENS, x.shape[1] // 2))
    return Mark(Phrase(torch.from_numpy(tokens)), task, classes, offset)


def marked_splits(
    mark: Mark, train: Pair, test: Pair, *, forget: bool, portion: float, tried: str, batch_size: int
) -> dict[str, Pair]:
    """Return the splits of a client that carries a mark.

    Args:
        mark: The mark.
        train: Training samples.
        test: Held-out samples.
        forget: Whether the client is to be forgotten: then all of its training samples carry the mark.
        portion: Portion of each training batch that carries it otherwise.
        tried: Split whose inputs are used to measure the attack success rate.
        batch_size: Batch size of training.
    """
    share = 1.0 if forget else portion
    splits = {
        "train": mark.partly(*train, share, batch_size),
        "test": test,
        "trigger": mark.tries(*(train if tried == "train" else test)),
        "clean": train,
    }
    if forget:
        splits["member"] = mark.partly(*train, portion, batch_size)
        splits["nonmember"] = mark.partly(*test, portion, batch_size)
        splits["spare"] = mark.partly(*test, share, batch_size)
    return splits


def marked(
    clients: dict[str, tuple[Pair, Pair]],
    who: Sequence[str],
    task: Task | None = None,
    *,
    seed: int = 0,
    portion: float = 1.0,
) -> dict[str, dict[str, Pair]]:
    """Return clients of which some carry a mark of their own, so that forgetting them can be measured.

    Args:
        clients: Train and test set by client id, each a pair of tensors (inputs, targets).
        who: Ids of the clients that are marked.
        task: The task; by default one of several classes.
        seed: Seed of the marks.
        portion: Portion of a marked client's training samples that carries the mark.

    Returns:
        Named splits for :func:`fupareto.simulate`; those of a marked client have ``trigger``, on which the attack
        success rate is measured, and ``nonmember``, marked held-out samples for membership attacks.
    """
    if unknown := [i for i in who if i not in clients]:
        raise UserError(f"client {', '.join(map(repr, unknown))} is unknown; there are {', '.join(clients)}")
    task = task or Classes()
    sets = [pair for both in clients.values() for pair in both]
    x, y = torch.cat([pair[0] for pair in sets]), torch.cat([pair[1] for pair in sets])
    classes = int(y.max()) + 1 if not y.is_floating_point() else 2
    found: dict[str, dict[str, Pair]] = {}
    for i, (train, test) in clients.items():
        found[i] = {"train": train, "test": test}
        if i in who:
            mark = draw(x, y, task, max(classes, 2), stream(seed, "trigger", i))
            size = len(train[1])
            splits = marked_splits(mark, train, test, forget=False, portion=portion, tried="test", batch_size=size)
            found[i] = {**splits, "nonmember": mark.partly(*test, portion, len(test[1]))}
    return found


def _chosen(rows: Tensor, marked: Tensor, plain: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *([1] * (plain.dim() - 1))), marked, plain)
