"""Schemas of answers: the type and the limits of every field, checked on the server before an answer is used.

The schema of an answer is its annotations, such as ``size: Count``. Types are strict: true is not a number, and 1.0
is not a whole number. Tensors are checked by their question, which knows the shape that it asked for
(``flaw`` in base.py).
"""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval, MaxLen

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST = 10**12  # samples, or steps, that a client may claim
LONGEST = 500  # characters of a reason, and of anything else that a client writes into a record
MOST_VALUES = 1000  # entries of a list or a mapping

Count = Annotated[int, Interval(ge=0, le=MOST)]
Name = Annotated[str, MaxLen(100)]
Numbers = Annotated[tuple[float, ...], MaxLen(MOST_VALUES)]
Measured = Annotated[dict[Name, Annotated[dict[Name, float], MaxLen(10)]], MaxLen(100)]


def misfit(answer: Any) -> str | None:
    """Return where an answer does not follow the schema of its class, and what would be right; None if it does."""
    from pydantic import ValidationError  # not needed on clients, which start a process for every message

    try:
        _adapter(answer.__class__).validate_python(answer)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(clipped(str(key), 40) for key in wrong["loc"])
        return f"answered with {where} {clipped(_shown(wrong['input']), 60)}: {wrong['msg']}"
    return None


def clipped(text: str, longest: int = LONGEST) -> str:
    """Return the text, shortened to ``longest`` characters, with control characters replaced."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(c if c.isprintable() else " " for c in short)


@cache
def _adapter(cls: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def _shown(value: Any) -> str:
    """Return a value as text; numbers too long to print by their length."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    return (
        repr(value[:60] if isinstance(value, str) else value)
        if isinstance(value, str | int | float)
        else (f"of type {type(value).__name__}")
    )
