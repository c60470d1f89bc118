"""Parsing of lists, options and requests from a command line or a Flower run config."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fupareto import documents
from fupareto.errors import UserError

if TYPE_CHECKING:
    from fupareto.federation import Request


def options(pairs: list[str], option: str = "--set") -> dict[str, Any]:
    """Parse key=value pairs, with values as in TOML; a value that is not valid TOML is text. A key stands once."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"{option} takes key=value, not {pair!r}")
        if key in options:
            raise UserError(f"{option} sets {key} twice; give it once")
        options[key] = _value(value, f"{option} {key}")
    return options


def _value(text: str, where: str) -> Any:
    """Parse a value of TOML; text that is not valid TOML is the value."""
    try:
        return documents.parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def nested(pairs: list[str], option: str = "--set") -> dict[str, Any]:
    """Parse key=value pairs whose keys are paths, such as train.rounds=10, into nested mappings."""
    found: dict[str, Any] = {}
    for path, value in options(pairs, option).items():
        keys = path.split(".")
        inner: Any = found
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise UserError(f"{option} sets both {key!r} and a key within it, {path!r}")
        if keys[-1] in inner:
            raise UserError(f"{option} sets both {path!r} and a key within it")
        inner[keys[-1]] = value
    return found


def listed(text: str) -> list[str]:
    """Parse a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def request(clients: str | None, samples: Path | None, classes: str | None) -> "Request | None":
    """Parse what is to be forgotten; None where nothing is given.

    Args:
        clients: Comma-separated client ids.
        samples: JSON file that maps client ids to row numbers.
        classes: Comma-separated class numbers.
    """
    if (clients, samples, classes) == (None, None, None):
        return None
    from fupareto.federation import Request

    rows = {} if samples is None else _rows(samples)
    try:
        numbers = tuple(dict.fromkeys(int(c) for c in listed(classes or "")))
    except ValueError as error:
        raise UserError(f"classes must be numbers, such as 4 or 4,7, not {classes!r}") from error
    if classes is not None and not numbers:
        raise UserError("no class is named; give numbers, such as 4 or 4,7")
    return Request(tuple(dict.fromkeys(listed(clients or ""))), rows, numbers)


def _rows(path: Path) -> dict[str, tuple[int, ...]]:
    """Read row numbers by client from a JSON file."""
    try:
        raw = documents.parse_object(documents.read(path))
        if not raw:
            raise ValueError("it names no client")
        for client in raw:
            documents.check_name(client, "the client")
        return {client: documents.numbers(rows, f"the rows of client {client!r}") for client, rows in raw.items()}
    except ValueError as error:
        raise UserError(
            f'{path} must be JSON that maps client ids to row numbers, such as {{"3": [0, 17]}}: {error}'
        ) from error
