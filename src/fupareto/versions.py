"""Which software made a result?"""

import platform
from collections.abc import Sequence
from importlib import metadata


def versions(more: Sequence[str] = ()) -> dict[str, str]:
    """Return the versions that a result depends on; ``more`` are packages that its engine needs."""
    found = {name: metadata.version(name) for name in ("fupareto", "torch", "numpy", *more)}
    return {**found, "python": platform.python_version()}
