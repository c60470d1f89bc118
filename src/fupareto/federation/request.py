"""Requests: what must be forgotten, whole clients, samples of clients, or classes.

A request for samples or classes turns part of a client into a *virtual* client: client 3 keeps its other data, and the
virtual client ``3/forget`` has the data to forget. Methods see forget clients and retained clients in either case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fupareto.errors import UserError
from fupareto.tasks.samples import Samples, samples_of

Splits = Mapping[str, Any]  # name -> Samples, or inputs and labels; "train" is required, "test" is usual
VIRTUAL = "/forget"  # suffix of the ids of virtual clients


@dataclass(frozen=True)
class Request:
    """A request to forget clients, samples or classes.

    Attributes:
        clients: Ids of the clients to forget.
        samples: Row numbers in the training data to forget, by client.
        classes: Classes to forget, at all clients.
        left: Ids of clients that earlier requests have forgotten; they are neither forget nor retained clients.
    """

    clients: tuple[str, ...] = ()
    samples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    classes: tuple[int, ...] = ()
    left: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if sum(map(bool, (self.clients, self.samples, self.classes))) > 1:
            raise UserError("a request names clients, or samples, or classes; use one request for each kind")

    @property
    def partial(self) -> bool:
        """Whether the request is for samples or classes, not for whole clients."""
        return bool(self.samples or self.classes)

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
            gone = self._gone(i, splits["train"])
            held_out = {"test": splits["test"]} if "test" in splits else {}
            kept = {"train": splits["train"].take(~gone)} if not bool(gone.all()) else {}
            if kept and "test" in splits:
                outside = ~self._of_classes(splits["test"])
                kept |= {"test": splits["test"].take(outside)} if bool(outside.any()) else {}
            if kept:
                divided[i] = kept
            if bool(gone.any()):
                if "test" in splits and bool((like := self._of_classes(splits["test"])).any()):
                    held_out["nonmember"] = splits["test"].take(like)
                divided[f"{i}{VIRTUAL}"] = {**held_out, "train": splits["train"].take(gone)}
        return divided

    def of(self, client: str) -> "Request":
        """Return the part of the request that concerns one client, without the row numbers of other clients."""
        return Request(samples={i: rows for i, rows in self.samples.items() if i == client}, classes=self.classes)

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

    def _gone(self, client: str, train: Samples) -> Tensor:
        if not self.samples:
            return self._of_classes(train)
        rows = self.samples.get(client, ())
        gone = torch.zeros(len(train), dtype=torch.bool, device="cpu")
        if outside := [r for r in rows if not 0 <= r < len(train)]:
            raise UserError(
                f"client '{client}' has training samples 0 to {len(train) - 1}; the request names {outside[0]}"
            )
        gone[list(rows)] = True
        return gone

    def _of_classes(self, samples: Samples) -> Tensor:
        if not self.classes:
            return torch.zeros(len(samples), dtype=torch.bool, device="cpu")
        labels = samples.targets
        if labels.dim() != 1:
            raise UserError(
                f"classes cannot be forgotten where samples have no single class, as in the task {samples.task.label}; "
                "name clients or samples"
            )
        held = [
            c for c in self.classes if int(labels.min()) <= c <= int(labels.max())
        ]  # other numbers may overflow the type
        return torch.isin(labels, torch.tensor(held, dtype=labels.dtype, device="cpu").to(labels.device))

    def to_json(self) -> dict[str, Any]:
        """Return the request in the format of request.json."""
        found: dict[str, Any] = {"clients": list(self.clients)}
        if self.samples:
            found["samples"] = {i: list(rows) for i, rows in self.samples.items()}
        if self.classes:
            found["classes"] = list(self.classes)
        if self.left:
            found["left"] = list(self.left)
        return found

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Request":
        """Return the request from the format of request.json."""
        samples = {str(i): tuple(rows) for i, rows in raw.get("samples", {}).items()}
        return cls(tuple(raw.get("clients", ())), samples, tuple(raw.get("classes", ())), tuple(raw.get("left", ())))


def _list(words: Iterable[str]) -> str:
    *most, last = words
    return " and ".join(filter(None, [", ".join(most), last]))
