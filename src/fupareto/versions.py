"""Versions of the software that a result depends on."""

import platform
from collections.abc import Sequence
from importlib import metadata


def versions(more: Sequence[str] = ()) -> dict[str, str]:
    """Return the versions of fupareto, torch, numpy, the packages in ``more`` and Python, by name."""
    found = {name: metadata.version(name) for name in ("fupareto", "torch", "numpy", *more)}
    return {**found, "python": platform.python_version()}
