"""Base classes of questions and answers.

A question is a frozen dataclass that can be sent over a network. It defines how a client answers it (``answer``, which
runs on the client) and whether an answer can be used (``flaw``, which runs on the server). A method with its own
computation on the client defines a subclass of :class:`Question`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fupareto.federation.questions.schema import clipped, misfit
from fupareto.federation.request import Splits

QUESTIONS: dict[str, type["Question"]] = {}  # by class name, for engines that deserialise them
ANSWERS: dict[str, type["Answer"]] = {}

NUMBERS = "answered with numbers"  # prefix of the reasons that mean a diverged model
FORWARD = 1 / 3  # of a pass forward and backward: the usual estimate of a forward pass's work
LARGEST = 1e10  # larger weights and gradients are rejected as diverged


def _register(known: dict[str, Any], cls: type) -> None:
    """Register a class by its name, which identifies it in messages and must be unique."""
    before = known.setdefault(cls.__name__, cls)
    if (before.__module__, before.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"{cls.__name__} already exists in {before.__module__}; choose another name")
    known[cls.__name__] = cls


class Answer:
    """Base class of answers; subclasses are frozen dataclasses whose annotations are their schema (schema.py)."""

    __pydantic_config__: ClassVar[Any] = {
        "strict": True,
        "arbitrary_types_allowed": True,
        "revalidate_instances": "always",
    }

    def __init_subclass__(cls) -> None:
        _register(ANSWERS, cls)


class Question(ABC):
    """Base class of questions; subclasses are frozen dataclasses.

    Attributes:
        answered_by: Class of the answers.
        in_order: Whether clients should begin in the order asked, because an early answer may spare the others.
    """

    answered_by: ClassVar[type[Answer]]
    in_order: ClassVar[bool] = False

    @property
    def passes(self) -> float:
        """How often the client goes over its training data, forward and backward; forward alone is a third of it."""
        return 0.0

    def __init_subclass__(cls, abstract: bool = False) -> None:
        if not abstract:
            _register(QUESTIONS, cls)

    @abstractmethod
    def answer(self, module: nn.Module, splits: Splits, client: str) -> Answer:
        """Return the answer; runs on the client.

        Args:
            module: A module of the federation's model, whose weights may be overwritten.
            splits: The client's data.
            client: The client's id.
        """

    @abstractmethod
    def flaw(self, answer: Any, size: int) -> str | None:
        """Return why an answer cannot be used, or None if it can; runs on the server.

        Args:
            answer: An answer of type ``answered_by``.
            size: Number of parameters of the model.
        """


@dataclass(frozen=True)
class Failure(Answer):
    """No usable answer, with the reason."""

    reason: str


def flaw(question: Question, answer: Answer, size: int) -> str | None:
    """Return why an answer from a client cannot be used; None if it can.

    No answer raises an exception, and the reason is short whatever the client wrote.
    """
    try:
        return None if (reason := _flaw(question, answer, size)) is None else clipped(reason)
    except Exception as error:  # whatever an answer contains is a failure of its client
        return clipped(f"answered with something malformed: {type(error).__name__}: {error}")


def _flaw(question: Question, answer: Answer, size: int) -> str | None:
    if isinstance(answer, Failure):
        return answer.reason if isinstance(answer.reason, str) and answer.reason else "failed without a reason"
    if not isinstance(answer, question.answered_by):
        return f"answered with {type(answer).__name__}, not {question.answered_by.__name__}"
    return misfit(answer) or question.flaw(answer, size)


def flaw_of_vector(vector: Any, size: int) -> str | None:
    """Return why a model or gradient cannot be used (its shape, type, or values); None if it can."""
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
    """Return whether at least half of the missing clients answered with values of a diverged model."""
    return bool(missing) and 2 * sum(reason.startswith(NUMBERS) for reason in missing.values()) >= len(missing)
