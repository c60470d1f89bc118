"""How is read what a user types? Lists, options and requests, on a command line or in a run config."""

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fupareto.errors import UserError

if TYPE_CHECKING:
    from fupareto.federation import Request


def options(pairs: list[str], option: str = "--set") -> dict[str, Any]:
    """Read key=value pairs as TOML has them; a bare word is text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"{option} takes key=value, not {pair!r}")
        try:
            options[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            options[key] = value
    return options


def listed(text: str) -> list[str]:
    """Read a list that commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def request(clients: str | None, samples: Path | None, classes: str | None) -> "Request | None":
    """Read what is to be forgotten; None where nothing was said."""
    if (clients, samples, classes) == (None, None, None):
        return None
    from fupareto.federation import Request

    rows: dict[str, tuple[int, ...]] = {}
    if samples is not None:
        try:
            raw = json.loads(samples.read_text())
            if not isinstance(raw, dict):
                raise ValueError(f"it holds a {type(raw).__name__}")
            rows = {str(i): tuple(numbers) for i, numbers in raw.items()}
            if not rows or not all(type(n) is int for numbers in rows.values() for n in numbers):
                raise ValueError("row numbers are whole numbers")
        except OSError as error:
            raise UserError(f"cannot read {samples}: {error.strerror}") from error
        except (ValueError, AttributeError, TypeError) as error:
            raise UserError(
                f'{samples} must be JSON that maps clients to row numbers, such as {{"3": [0, 17]}}: {error}'
            ) from error
    try:
        numbers = tuple(dict.fromkeys(int(c) for c in listed(classes or "")))
    except ValueError as error:
        raise UserError(f"classes are numbers, such as 4 or 4,7, not {classes!r}") from error
    if classes is not None and not numbers:
        raise UserError("no class is named; give numbers, such as 4 or 4,7")
    return Request(tuple(dict.fromkeys(listed(clients or ""))), rows, numbers)
