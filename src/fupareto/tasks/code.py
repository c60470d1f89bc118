"""Import of a user's code by ``package.module:name``."""

import importlib
from typing import Any

from fupareto.errors import UserError


def imported(path: str, what: str) -> Any:
    """Return what a user's module has under a name.

    Args:
        path: ``package.module:name``.
        what: What it is, for messages.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise UserError(f"{what} '{path}' must be named as package.module:name")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # a user's module may raise anything
        raise UserError(f"{what} '{path}' could not be imported: {type(error).__name__}: {error}") from error
    return found
