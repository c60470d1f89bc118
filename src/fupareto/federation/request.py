"""What must be forgotten? Whole clients, samples of clients, or classes.

A request for samples or classes turns part of a client into a *virtual* client: client 3 keeps the rest of its data,
and ``3/forget`` holds what must go. Methods see two sides and never know the difference.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fupareto.errors import UserError

Splits = Mapping[str, tuple[Tensor, Tensor]]  # name -> inputs and labels; "train" always, "test" nearly so
VIRTUAL = "/forget"


@dataclass(frozen=True)
class Request:
    """One request; ``samples`` are row numbers in a client's training data, as its owner has them."""

    clients: tuple[str, ...] = ()
    samples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    classes: tuple[int, ...] = ()
    left: tuple[str, ...] = ()  # forgotten by an earlier request: on neither side any more

    def __post_init__(self) -> None:
        if sum(map(bool, (self.clients, self.samples, self.classes))) > 1:
            raise UserError("a request names clients, or samples, or classes; answer several kinds one after the other")

    @property
    def partial(self) -> bool:
        """Return whether only a part of the clients' data must go."""
        return bool(self.samples or self.classes)

    def sides(self, ids: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the forget set and the retained set, in the federation's order."""
        here = [i for i in ids if i not in self.left]
        if self.partial:
            forget = tuple(i for i in here if i.endswith(VIRTUAL))
            if not forget:
                raise UserError(f"nobody holds {self.words()}, so there is nothing to forget")
        else:
            forget = tuple(i for i in here if i in self.clients)
            if unknown := [c for c in self.clients if c not in here]:
                raise UserError(
                    f"no client {', '.join(map(repr, unknown))} in the federation; it has {', '.join(here)}"
                )
            if not self.clients:
                raise UserError(f"the request names nobody to forget; name clients among {', '.join(here)}")
        retained = tuple(i for i in here if i not in forget)
        if not retained:
            raise UserError(
                "the request forgets everything, so there is nobody to keep the model for; delete the model instead, "
                "or leave at least one client out of the request"
            )
        return forget, retained

    def divide(self, clients: Mapping[str, Splits]) -> dict[str, Splits]:
        """Return the clients with their virtual clients beside them; clients without anything to forget stay whole.

        Retained clients are tested without the classes that must go. A client that loses all of its training data is
        no longer there, one that loses all of its test data is not tested. A virtual client is given the whole test
        set of its owner, as held-out data that some methods use: whether it is forgotten is seen on the samples that
        must go. Where they are of a class, those of the test set's samples that are too are its ``nonmember`` data, so
        that a membership attack compares like with like.
        """
        if unknown := [c for c in self.samples if c not in clients]:
            raise UserError(
                f"samples of client {', '.join(map(repr, unknown))} are to be forgotten, but the federation has "
                f"{', '.join(clients)}"
            )
        if taken := [i for i in clients if i.endswith(VIRTUAL)]:
            raise UserError(f"client {taken[0]!r} has a name that is kept for virtual clients; rename it")
        divided: dict[str, Splits] = {}
        for i, splits in clients.items():
            if i in self.left:
                continue
            gone = self._gone(i, splits["train"][1])
            held_out = {"test": splits["test"]} if "test" in splits else {}
            kept = {"train": _take(splits["train"], ~gone)} if not bool(gone.all()) else {}
            if kept and "test" in splits:
                outside = ~self._of_classes(splits["test"][1])
                kept |= {"test": _take(splits["test"], outside)} if bool(outside.any()) else {}
            if kept:
                divided[i] = kept
            if bool(gone.any()):
                if "test" in splits and bool((like := self._of_classes(splits["test"][1])).any()):
                    held_out["nonmember"] = _take(splits["test"], like)
                divided[f"{i}{VIRTUAL}"] = {**held_out, "train": _take(splits["train"], gone)}
        return divided

    def of(self, client: str) -> "Request":
        """Return what the request asks of one client, without the others' row numbers."""
        return Request(samples={i: rows for i, rows in self.samples.items() if i == client}, classes=self.classes)

    def words(self) -> str:
        """Say what part of the data is to be forgotten; nothing where it is whole clients."""
        if self.classes:
            kind = "class " if len(self.classes) == 1 else "classes "
            return f"training samples of {kind}{_list(map(str, self.classes))}"
        if self.samples:
            count = sum(len(set(rows)) for rows in self.samples.values())
            what, kind = "sample" if count == 1 else "samples", "client" if len(self.samples) == 1 else "clients"
            return f"{count} training {what} of {kind} {_list(self.samples)}"
        return ""

    def _gone(self, client: str, labels: Tensor) -> Tensor:
        if not self.samples:
            return self._of_classes(labels)
        rows = self.samples.get(client, ())
        gone = torch.zeros(len(labels), dtype=torch.bool, device="cpu")
        if outside := [r for r in rows if not 0 <= r < len(labels)]:
            raise UserError(
                f"client '{client}' has training samples 0 to {len(labels) - 1}; the request names {outside[0]}"
            )
        gone[list(rows)] = True
        return gone.to(labels.device)

    def _of_classes(self, labels: Tensor) -> Tensor:
        held = [c for c in self.classes if int(labels.min()) <= c <= int(labels.max())]  # others may not fit the type
        return torch.isin(labels, torch.tensor(held, dtype=labels.dtype, device="cpu").to(labels.device))

    def to_json(self) -> dict[str, Any]:
        """Return the request as request.json has it."""
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
        """Read what :meth:`to_json` wrote."""
        samples = {str(i): tuple(rows) for i, rows in raw.get("samples", {}).items()}
        return cls(tuple(raw.get("clients", ())), samples, tuple(raw.get("classes", ())), tuple(raw.get("left", ())))


def _list(words: Iterable[str]) -> str:
    *most, last = words
    return " and ".join(filter(None, [", ".join(most), last]))


def _take(samples: tuple[Tensor, Tensor], chosen: Tensor) -> tuple[Tensor, Tensor]:
    return samples[0][chosen], samples[1][chosen]
