"""Bounded reading of JSON and TOML files, which may come from somebody else.

A document is a regular file of limited size, in UTF-8. Its values are limited in depth and in the size of numbers, and
its text can be written again. Whatever reads JSON or TOML reads it here.
"""

import json
import math
import os
import re
import reprlib
import stat
import tomllib
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from fupareto.errors import UserError

LARGEST = 2**26  # bytes of a document
LARGEST_TOML = 2**24  # characters of TOML, which takes ten times as long to read
DEEPEST = 64  # levels of lists and tables
LONGEST_NAME = 255  # characters of a name: of a client, an experiment, a method
NUMBERS = 2**63  # absolute values of integers lie below it
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_DEEP_KEY = re.compile(rf"(?<![\w-])(?:{_PART}){{1000}}")  # tomllib takes quadratic time over such keys


def read(path: Path, largest: int | None = LARGEST) -> bytes:
    """Return the content of a regular file; a pipe or a device is refused, not waited for.

    Args:
        path: The file.
        largest: Bytes that it may have; None for any number.

    Raises:
        UserError: The file cannot be read; the message names it.
    """
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if largest is not None and size > largest:
                raise UserError(f"cannot read {path}: it has more than {largest / 2**20:,.0f} MB")
            return file.read(size)
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading; a pipe or a device is refused, not waited for."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UserError(f"cannot read {path}: it is not a file but a pipe or a device")
    return file


def expand(path: str | Path) -> Path:
    """Return a path whose ``~`` or ``~user`` is replaced by the home directory of the user.

    Raises:
        UserError: There is no such user, or the path has a character that no path can have.
    """
    try:
        if "\0" in str(path):
            raise ValueError("it has a null character")
        return Path(path).expanduser()
    except (ValueError, RuntimeError) as error:
        reason = "there is no such user" if isinstance(error, RuntimeError) else error
        raise UserError(f"cannot use the path {reprlib.repr(str(path))}: {reason}") from error


def parse_json(data: bytes | str, finite: bool = True, once: bool = True) -> Any:
    """Return the value of a JSON document.

    Args:
        data: The document.
        finite: Whether numbers must be finite, as JSON says; Python writes infinity and NaN by name.
        once: Whether a key that is there twice is an error; else the last one counts.

    Raises:
        ValueError: It is not JSON, or a key is there twice, or a value exceeds the limits of this module.
    """
    text = data.decode() if isinstance(data, bytes) else data
    try:
        pairs, constant = _once if once else None, _no_number if finite else float
        found = json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except RecursionError as error:
        raise ValueError(_too_deep()) from error
    check(found, finite)
    return found


def parse_object(data: bytes | str, finite: bool = True, once: bool = True) -> dict[str, Any]:
    """Return the value of a JSON document that is an object; ValueError for anything else."""
    found = parse_json(data, finite, once)
    if not isinstance(found, dict):
        raise ValueError(f"it is a {type(found).__name__}, not an object")
    return found


def parse_toml(data: bytes | str) -> dict[str, Any]:
    """Return the values of a TOML document.

    Raises:
        ValueError: It is not TOML, or a value exceeds the limits of this module.
    """
    text = data.decode() if isinstance(data, bytes) else data
    if len(text) > LARGEST_TOML:
        raise ValueError(f"it has more than {LARGEST_TOML >> 20} MB")
    if _DEEP_KEY.search(text):
        raise ValueError(_too_deep())
    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(_too_deep()) from error
    check(found, finite=False)
    return found


def check(value: Any, finite: bool = True) -> None:
    """Raise ValueError for a value that exceeds the limits of this module.

    Args:
        value: A value of JSON or TOML.
        finite: Whether numbers must be finite; TOML has names for infinity and NaN, JSON has not.
    """
    level: list[Any] = [value]
    for depth in range(DEEPEST + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict | list | tuple) and depth == DEEPEST:
                raise ValueError(_too_deep())
            if isinstance(one, dict):
                inner += [*one, *one.values()]
            elif isinstance(one, list | tuple):
                inner += one
            elif isinstance(one, str):
                check_text(one)
            elif isinstance(one, int) and abs(one) >= NUMBERS:
                raise ValueError(
                    f"a number is too large; integers lie between -2^63 and 2^63, but one has {one.bit_length()} bits"
                )
            elif finite and isinstance(one, float) and not math.isfinite(one):
                raise ValueError("a number is too large, or not a number")
        level = inner


def check_text(text: str, what: str = "the text") -> None:
    """Raise ValueError for text that cannot be written as UTF-8: it has lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} {reprlib.repr(text)} is not valid Unicode: it has a lone surrogate at position {error.start}"
        ) from error


def names(values: Any, what: str) -> tuple[str, ...]:
    """Return a list of names as a tuple; ValueError for anything else."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"{what} must be a list of names, not {reprlib.repr(values)}")
    for name in values:
        check_name(name, what)
    return tuple(values)


def check_name(name: str, what: str) -> None:
    """Raise ValueError for a name that is too long, or has a character that no name can have."""
    check_text(name, what)
    if "\0" in name:
        raise ValueError(f"{what} {reprlib.repr(name)} has a null character")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{what} {reprlib.repr(name)} has {len(name)} characters; at most {LONGEST_NAME} are allowed")


def numbers(values: Any, what: str) -> tuple[int, ...]:
    """Return a list of integers as a tuple; ValueError for anything else."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(type(v) is int for v in values):
        raise ValueError(f"{what} must be a list of integers, not {reprlib.repr(values)}")
    return tuple(values)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {reprlib.repr(twice)} is there twice")
    return found


def _too_deep() -> str:
    return f"it is nested too deeply; at most {DEEPEST} levels are allowed"
