"""The one exception for mistakes that a user can mend; the command line turns it into exit code 2."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What was wrong, where, and what would be right, in words for the person who typed it."""


class NotApplicable(UserError):
    """A method was asked for something that it cannot do by its nature."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name, to end a message with; empty where nothing is near."""
    near = difflib.get_close_matches(str(name).lower(), list(known), 1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
