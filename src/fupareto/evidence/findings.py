"""Findings of a verification: one per thing that was checked, or could not be."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

OK, FAILED, NOT_CHECKED = "ok", "failed", "not checked"


@dataclass(frozen=True)
class Finding:
    """One result of a check; ``about`` is the file, the part of the certificate or the number that it is about."""

    level: str  # ok, failed, not checked
    about: str
    text: str


def pairs(one: Any, other: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    """Walk two JSON values side by side and yield their leaves, with the way there; what one lacks is None there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from pairs(one.get(key), other.get(key), f"{at}.{word(key)}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from pairs(left, right, f"{at}.{number}")
    else:
        yield at, one, other


def word(text: str) -> str:
    """Return a key for display: as it is if it is harmless, else with its control characters spelt out."""
    return text if text.isprintable() else repr(text)
