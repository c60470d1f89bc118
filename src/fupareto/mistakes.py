"""Mistakes in experiment and bench files, in words."""

import re
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from fupareto.errors import did_you_mean

MOST_MISTAKES = 20  # that one message names
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 80


def explain(error: ValidationError, where: str, model: type[BaseModel]) -> str:
    """Return a message with one line per mistake: its key, its value and what is expected there.

    Args:
        error: The error of pydantic.
        where: The file, or what else was read, for the message.
        model: The model that was validated.
    """
    lines = []
    for mistake in error.errors():
        parts = (str(part) for part in mistake["loc"] if part != "int" and not str(part).startswith("list["))
        key = _short(".".join(parts)) or "the file"
        if mistake["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            lines.append(f"  {key}: unknown key{did_you_mean(mistake['loc'][-1], _known(model, mistake['loc']))}")
        else:
            message = mistake["msg"].removeprefix("Value error, ")
            if mistake["type"] == "literal_error":
                message += did_you_mean(mistake["input"], re.findall("'([^']*)'", mistake["ctx"]["expected"]))
            shown = f"{key} = {SHORT.repr(mistake['input'])}: " if key != "the file" else ""
            lines.append(f"  {shown}{message}")
    lines = list(dict.fromkeys(lines))
    more = [f"  and {len(lines) - MOST_MISTAKES} more"] if len(lines) > MOST_MISTAKES else []
    return f"{where} is not valid:\n" + "\n".join([*lines[:MOST_MISTAKES], *more])


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:80]}...{text[-30:]}"


def _known(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """Return the valid keys of the section in which ``loc`` lies (section names, list positions, key)."""
    for part in loc[:-1]:
        found = model.model_fields.get(str(part))
        if found is not None:
            model = next(_sections(found.annotation), model)
    return list(model.model_fields)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)
