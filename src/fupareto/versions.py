"""Which software made a result?"""

import platform
import sys
from importlib import metadata

PACKAGES = ("fupareto", "torch", "numpy", "flwr")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that took part."""
    found = {name: metadata.version(name) for name in PACKAGES if name in sys.modules}
    return {**found, "python": platform.python_version()}
