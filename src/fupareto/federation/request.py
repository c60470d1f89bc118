"""Requests: what must be forgotten, whole clients, samples of clients, or classes.

A request for samples or classes turns part of a client into a *virtual* client: client 3 keeps its other data, and the
virtual client ``3/forget`` has the data to forget. Methods see forget clients and retained clients in either case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fupareto import documents
from fupareto.errors import UserError
from fupareto.randomness import stream
from fupareto.tasks.samples import Samples, samples_of

Splits = Mapping[str, Any]  # name -> Samples, or inputs and labels; "train" is required, "test" is usual
GROUP = 64  # samples of a client below which a gradient may give them away
VIRTUAL = "/forget"  # suffix of the ids of virtual clients


@dataclass(frozen=True)
class Request:
    """A request to forget clients, samples or classes.

    Attributes:
        clients: Ids of the clients to forget.
        samples: Row numbers in the training data to forget, by client.
        classes: Classes to forget, at all clients.
        left: Ids of clients that earlier requests have forgotten; they are neither forget nor retained clients.
        left_samples: Row numbers that earlier requests have forgotten, by client; nobody trains on them any more.
        left_classes: Classes that earlier requests have forgotten.
    """

    clients: tuple[str, ...] = ()
    samples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    classes: tuple[int, ...] = ()
    left: tuple[str, ...] = ()
    left_samples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    left_classes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if sum(map(bool, (self.clients, self.samples, self.classes))) > 1:
            raise UserError("a request names clients, or samples, or classes; use one request for each kind")

    @property
    def partial(self) -> bool:
        """Whether the request is for samples or classes, not for whole clients."""
        return bool(self.samples or self.classes)

    @property
    def divides(self) -> bool:
        """Whether clients do not take part with all of their data: this request, or an earlier one, names parts."""
        return bool(self.partial or self.left_samples or self.left_classes)

    def after(self, earlier: "Request") -> "Request":
        """Return this request as one that follows another: what that one forgot, and those before it, has left."""
        rows: dict[str, set[int]] = {}
        for part in (earlier.left_samples, earlier.samples, self.left_samples):
            for i, numbers in part.items():
                rows.setdefault(i, set()).update(numbers)
        return replace(
            self,
            left=tuple(dict.fromkeys((*earlier.left, *earlier.clients, *self.left))),
            left_samples={i: tuple(sorted(numbers)) for i, numbers in rows.items()},
            left_classes=tuple(dict.fromkeys((*earlier.left_classes, *earlier.classes, *self.left_classes))),
        )

    def sides(self, ids: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the ids of the forget clients and of the retained clients, in the order of ``ids``.

        Raises:
            UserError: If a client is unknown, or there is nothing to forget, or no client is retained.
        """
        here = [i for i in ids if i not in self.left]
        if self.partial:
            forget = tuple(i for i in here if i.endswith(VIRTUAL))
            if not forget:
                raise UserError(f"no client has {self.words()}; there is nothing to forget")
        else:
            forget = tuple(i for i in here if i in self.clients)
            if unknown := [c for c in self.clients if c not in here]:
                raise UserError(
                    f"no client {', '.join(map(repr, unknown))} in the federation; it has {', '.join(here)}"
                )
            if not self.clients:
                raise UserError(f"the request names no client to forget; choose from {', '.join(here)}")
        retained = tuple(i for i in here if i not in forget)
        if not retained:
            raise UserError(
                "the request forgets everything: no retained client is left; leave at least one client out of the "
                "request, or delete the model instead"
            )
        return forget, retained

    def divide(self, clients: Mapping[str, Splits]) -> dict[str, Splits]:
        """Return the clients and the virtual clients of a request for samples or classes.

        Retained clients keep the other training data, and are tested without the classes to forget. A client without
        remaining training data is left out; one without remaining test data has no ``test`` split. A virtual client has
        the training data to forget, on which forgetting is measured, and the whole test set of its client, as held-out
        data for methods that need them. For a request for classes, the test samples of these classes are its
        ``nonmember`` data, so that a membership attack compares samples of the same classes.

        Args:
            clients: Splits of every client.
        """
        if unknown := [c for c in self.samples if c not in clients]:
            raise UserError(
                f"samples of client {', '.join(map(repr, unknown))} are to be forgotten, but the federation has "
                f"{', '.join(clients)}"
            )
        if taken := [i for i in clients if i.endswith(VIRTUAL)]:
            raise UserError(
                f"the client id {taken[0]!r} ends in '{VIRTUAL}', which is reserved for virtual clients; rename it"
            )
        divided: dict[str, Splits] = {}
        for i, held in clients.items():
            if i in self.left:
                continue
            splits = {name: samples_of(samples) for name, samples in held.items()}
            left = _rows(i, splits["train"], self.left_samples) | _among(splits["train"], self.left_classes)
            gone = self._gone(i, splits["train"]) & ~left
            if not self.partial:
                if not bool(left.all()):
                    divided[i] = _remaining(splits, ~left, self.left_classes)
                continue
            held_out = {"test": splits["test"]} if "test" in splits else {}
            staying = ~gone & ~left
            kept = {"train": splits["train"].take(staying)} if bool(staying.any()) else {}
            if kept and "test" in splits:
                outside = ~_among(splits["test"], (*self.classes, *self.left_classes))
                kept |= {"test": splits["test"].take(outside)} if bool(outside.any()) else {}
            if kept:
                divided[i] = kept
            if bool(gone.any()):
                if "test" in splits and bool((like := _among(splits["test"], self.classes)).any()):
                    held_out["nonmember"] = splits["test"].take(like)
                divided[f"{i}{VIRTUAL}"] = {**held_out, "train": splits["train"].take(gone)}
        return divided

    def grouped(self, clients: Mapping[str, Splits], group: int, seed: int) -> "Request":
        """Return the request with more samples of the same clients, so that at least ``group`` are forgotten of each.

        The gradient of a few samples can give them away to the server; that of many mixes them. The samples that are
        added are forgotten as well. What earlier requests have forgotten is in no gradient and does not count; a client
        of which the request names no others is left as it is.

        Args:
            clients: Splits of every client.
            group: Smallest number of samples per client; a client that has fewer is forgotten as a whole.
            seed: Seed of the choice.
        """
        samples = {}
        for i, rows in self.samples.items():
            asked = tuple(dict.fromkeys(rows))
            held = self._held(i, clients[i]["train"]) if i in clients else set()
            new, others = held.intersection(asked), sorted(held.difference(asked))
            drawn = stream(seed, "group", i).permutation(len(others))[: max(0, group - len(new)) if new else 0]
            samples[i] = (*asked, *sorted(others[k] for k in drawn))
        return replace(self, samples=samples)

    def exposed(self) -> str:
        """Return a warning that a server could rebuild the samples to forget; empty where they are many."""
        few = {i: len(new) for i in self.samples if 0 < len(new := self._new(i)) < GROUP}
        if not few:
            return ""
        i, count = min(few.items(), key=lambda item: item[1])
        return (
            f"Only {count} {'sample' if count == 1 else 'samples'} of client {i} are to be forgotten: a server that "
            "sees the gradient of so few samples can rebuild some of them, exactly where the first layer is dense. "
            f"--group {GROUP} forgets them together with more samples of the same client."
        )

    def of(self, client: str) -> "Request":
        """Return the part of the request that concerns one client, without the row numbers of other clients."""
        own = {i: rows for i, rows in self.samples.items() if i == client}
        left = {i: rows for i, rows in self.left_samples.items() if i == client}
        return Request(samples=own, classes=self.classes, left_samples=left, left_classes=self.left_classes)

    def words(self) -> str:
        """Return the data to forget in words; empty for a request for whole clients."""
        if self.classes:
            kind = "class " if len(self.classes) == 1 else "classes "
            return f"training samples of {kind}{_list(map(str, self.classes))}"
        if self.samples:
            count = sum(len(set(rows)) for rows in self.samples.values())
            what, kind = "sample" if count == 1 else "samples", "client" if len(self.samples) == 1 else "clients"
            return f"{count} training {what} of {kind} {_list(self.samples)}"
        return ""

    def _new(self, client: str) -> set[int]:
        """Return the row numbers of a client that the request names and no earlier request has forgotten."""
        return set(self.samples.get(client, ())) - set(self.left_samples.get(client, ()))

    def _held(self, client: str, train: Any) -> set[int]:
        """Return the row numbers of a client's training data that no earlier request has forgotten."""
        train = samples_of(train)
        left = _rows(client, train, self.left_samples) | _among(train, self.left_classes)
        return set(torch.nonzero(~left).flatten().tolist())

    def _gone(self, client: str, train: Samples) -> Tensor:
        return _rows(client, train, self.samples) if self.samples else _among(train, self.classes)

    def to_json(self) -> dict[str, Any]:
        """Return the request in the format of request.json."""
        found: dict[str, Any] = {"clients": list(self.clients)}
        if self.samples:
            found["samples"] = {i: list(rows) for i, rows in self.samples.items()}
        if self.classes:
            found["classes"] = list(self.classes)
        if self.left:
            found["left"] = list(self.left)
        if self.left_samples:
            found["left_samples"] = {i: list(rows) for i, rows in self.left_samples.items()}
        if self.left_classes:
            found["left_classes"] = list(self.left_classes)
        return found

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Request":
        """Return the request from the format of request.json; raise UserError for anything else."""
        try:
            return cls(
                documents.names(raw.get("clients", ()), "clients"),
                _rows_of(raw, "samples"),
                documents.numbers(raw.get("classes", ()), "classes"),
                documents.names(raw.get("left", ()), "left"),
                _rows_of(raw, "left_samples"),
                documents.numbers(raw.get("left_classes", ()), "left_classes"),
            )
        except ValueError as error:
            raise UserError(f"the request is damaged: {error}") from error


def _rows_of(raw: Mapping[str, Any], key: str) -> dict[str, tuple[int, ...]]:
    """Return row numbers by client; ValueError for anything else."""
    samples = raw.get(key, {})
    if not isinstance(samples, Mapping):
        raise ValueError(f"{key} must map clients to row numbers, not be a {type(samples).__name__}")
    documents.names(list(samples), key)
    return {i: documents.numbers(rows, f"{key} of client {i!r}") for i, rows in samples.items()}


def _list(words: Iterable[str]) -> str:
    *most, last = words
    return " and ".join(filter(None, [", ".join(most), last]))


def _rows(client: str, train: Samples, samples: Mapping[str, tuple[int, ...]]) -> Tensor:
    """Return which training samples of a client the row numbers name."""
    rows = samples.get(client, ())
    named = torch.zeros(len(train), dtype=torch.bool, device="cpu")
    if outside := [r for r in rows if not 0 <= r < len(train)]:
        raise UserError(f"client '{client}' has training samples 0 to {len(train) - 1}; the request names {outside[0]}")
    named[list(rows)] = True
    return named


def _among(samples: Samples, classes: Sequence[int]) -> Tensor:
    """Return which samples are of the classes."""
    if not classes:
        return torch.zeros(len(samples), dtype=torch.bool, device="cpu")
    labels = samples.targets.cpu()
    if labels.dim() != 1:
        raise UserError(
            f"classes cannot be forgotten where samples have no single class, as in the task {samples.task.label}; "
            "name clients or samples"
        )
    held = [c for c in classes if int(labels.min()) <= c <= int(labels.max())]  # other numbers may overflow the type
    return torch.isin(labels, torch.tensor(held, dtype=labels.dtype, device="cpu"))


def _remaining(splits: Mapping[str, Samples], staying: Tensor, classes: Sequence[int]) -> Splits:
    """Return all splits of a client without the rows, and the test data of the classes, that were forgotten earlier."""
    found = dict(splits)
    for name in ("train", "clean", "member", "trigger"):
        if name in found and len(found[name]) == len(staying) and not bool(staying.all()):
            found[name] = found[name].take(staying)
    if classes and "test" in found:
        outside = ~_among(found["test"], classes)
        found["test"] = found["test"].take(outside)
        if not bool(outside.any()):
            del found["test"]
    return found
