"""Question for the digest of a client's data, which binds a certificate to them without showing them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fupareto.federation.questions.base import Answer, Question
from fupareto.federation.request import Splits
from fupareto.tasks.samples import Held, Redrawn, samples_of

OWN = (("clean", "train"), ("test",))  # the data as the client owns them, without trigger, and its test data


@dataclass(frozen=True)
class Digested(Answer):
    """SHA-256 of a client's data, in lower-case hexadecimal."""

    sha256: str


@dataclass(frozen=True)
class Digest(Question):
    """Return the digest of the data that the client owns: inputs and labels, in their order, with types and shapes."""

    answered_by: ClassVar[type[Answer]] = Digested

    def answer(self, module: nn.Module, splits: Splits, client: str) -> Digested:
        """Return the digest."""
        return Digested(digest(splits))

    def flaw(self, answer: Digested, size: int) -> str | None:
        """Return why the digest cannot be used, or None."""
        known = isinstance(answer.sha256, str) and len(answer.sha256) == 64
        return None if known and not set(answer.sha256) - set("0123456789abcdef") else "answered with no SHA-256"


def digest(splits: Splits) -> str:
    """Return the digest of the data that a client owns."""
    found = hashlib.sha256()
    for names in OWN:
        name = next((name for name in names if name in splits), None)
        if name is not None:
            _add(found, names[-1], _parts(splits[name]))
    return found.hexdigest()


def _parts(given: Any) -> Any:
    """Return the inputs and targets of a split; batch by batch where a function makes the batches."""
    samples = samples_of(given)
    still = samples.still if isinstance(samples, Redrawn) else samples
    return (still.inputs, still.held) if isinstance(still, Held) else [batch[:2] for batch in still.batches(1)]


def _add(found: Any, name: str, held: Any) -> None:
    """Add tensors, or tuples and mappings of them, to a digest."""
    if isinstance(held, Tensor):
        found.update(f"{name}:{held.dtype}:{tuple(held.shape)};".encode())
        found.update(held.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return
    parts = held.items() if isinstance(held, Mapping) else enumerate(held)
    for key, part in parts:
        _add(found, f"{name}.{key}", part)
