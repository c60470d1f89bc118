"""Make a federated model forget clients, keep it useful for everyone else, and measure how well that worked."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fupareto.api import Result, simulate, train, unlearn
    from fupareto.errors import UserError
    from fupareto.federation import Federation, Local, Request
    from fupareto.methods import FedAvg, FUPareto, Method
    from fupareto.tasks.losses import Loss

__all__ = [
    "FUPareto",
    "FedAvg",
    "Federation",
    "Local",
    "Loss",
    "Method",
    "Request",
    "Result",
    "UserError",
    "simulate",
    "train",
    "unlearn",
]

_HOMES = {
    "api": ("Result", "simulate", "train", "unlearn"),
    "errors": ("UserError",),
    "federation": ("Federation", "Local", "Request"),
    "tasks.losses": ("Loss",),
    "methods": ("FUPareto", "FedAvg", "Method"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for: torch takes a second that ``--help`` does not have."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"fupareto.{home}"), name)
    raise AttributeError(f"module 'fupareto' has no attribute '{name}'")
