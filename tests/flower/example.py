"""The example app's two functions, loaded from where they stand."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

APP = Path(__file__).parents[2] / "examples" / "flower-app"
_spec = importlib.util.spec_from_file_location("digits_client", APP / "digits" / "client.py")
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

model: Callable[[], nn.Module] = _module.model
data: Callable[[Any], Any] = _module.data
