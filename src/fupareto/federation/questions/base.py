"""Questions and answers: what a server can ask a client, and what may come back.

A question is a frozen dataclass that crosses a network as it is. Its class says how a client answers it (``answer``,
which runs where the data are) and whether an answer can be used (``flaw``, which runs on the server). A method with a
computation of its own on the client defines one more subclass of :class:`Question`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fupareto.federation.request import Splits

QUESTIONS: dict[str, type["Question"]] = {}  # by class name, for engines that rebuild them from bytes
ANSWERS: dict[str, type["Answer"]] = {}

NUMBERS = "answered with numbers"  # the start of every reason that tells of a model that has diverged
LARGEST = 1e10  # no weight and no derivative of a working model is beyond it, and one such client ruins a mean


def _register(known: dict[str, Any], cls: type) -> None:
    """Enter a class under its name, which two classes cannot share: the name is what crosses the network."""
    before = known.setdefault(cls.__name__, cls)
    if (before.__module__, before.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"{cls.__name__} already exists in {before.__module__}; choose another name")
    known[cls.__name__] = cls


class Answer:
    """What a client sends back; subclasses are frozen dataclasses."""

    def __init_subclass__(cls) -> None:
        _register(ANSWERS, cls)


class Question(ABC):
    """What a server asks of one client; subclasses are frozen dataclasses."""

    answered_by: ClassVar[type[Answer]]

    def __init_subclass__(cls, abstract: bool = False) -> None:
        if not abstract:
            _register(QUESTIONS, cls)

    @abstractmethod
    def answer(self, module: nn.Module, splits: Splits, client: str) -> Answer:
        """Answer on the client: ``module`` is scratch space, ``splits`` are the client's data."""

    @abstractmethod
    def flaw(self, answer: Any, size: int) -> str | None:
        """Return why an answer of the right type cannot be used, or None; ``size`` is that of the model's vector."""


@dataclass(frozen=True)
class Failure(Answer):
    """No usable answer, and why."""

    reason: str


def flaw(question: Question, answer: Answer, size: int) -> str | None:
    """Return why an answer cannot be used, whatever foreign code has put into it; None if it can."""
    if isinstance(answer, Failure):
        return answer.reason
    try:
        if not isinstance(answer, question.answered_by):
            return f"answered with {type(answer).__name__}, not {question.answered_by.__name__}"
        return question.flaw(answer, size)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        return f"answered with something malformed: {type(error).__name__}: {error}"


def flaw_of_vector(vector: Any, size: int) -> str | None:
    """Return what is wrong with a model or a gradient: its shape, its type, or numbers that are not plausible."""
    if not isinstance(vector, Tensor) or tuple(vector.shape) != (size,):
        return f"answered with shape {tuple(getattr(vector, 'shape', ()))}, not ({size},)"
    if vector.dtype != torch.float32:
        return f"answered in {vector.dtype}, not torch.float32"
    low, high = (float(end) for end in torch.aminmax(vector))
    if not np.isfinite(low + high):
        return f"{NUMBERS} that are not finite"
    if max(-low, high) > LARGEST:
        return f"{NUMBERS} as large as {max(-low, high):.1e}, beyond {LARGEST:.0e}"
    return None


def diverged(missing: Mapping[str, str]) -> bool:
    """Return whether everybody who is missing answered, with numbers of a model that has diverged."""
    return bool(missing) and all(reason.startswith(NUMBERS) for reason in missing.values())
