"""Exceptions for mistakes that a user can correct; the command line ends with exit code 2 for them."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Error that the user can correct; its message says what is wrong, where, and what would be right."""


class NotApplicable(UserError):
    """Error for a method that does not support what is requested."""


class Diverged(UserError):
    """Error for a model whose numbers have grown beyond use."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the known name closest to ``name``; empty where none is close."""
    near = difflib.get_close_matches(str(name).lower(), list(known), 1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
