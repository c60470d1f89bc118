"""FUPareto without renewal, which unit tests of improvement, expansion and recovery use."""

from typing import Any

from fupareto.methods import FUPareto
from fupareto.methods.registry import find


def guard(**options: Any) -> FUPareto:
    """Return the preset ``fupareto:guard`` with other options."""
    found = find("fupareto:guard", options)
    assert isinstance(found, FUPareto)
    return found
