"""Make a federated model forget clients, keep it useful for everyone else, and measure how well."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fupareto import flower
    from fupareto.api import audit, simulate, train, unlearn
    from fupareto.audit.checks import Thresholds
    from fupareto.errors import UserError
    from fupareto.federation import Federation, Local, Request
    from fupareto.methods import FedAvg, FUPareto, Method
    from fupareto.result import Result
    from fupareto.tasks.losses import Loss
    from fupareto.tracking import Tracking
    from fupareto.verification import verify

    __version__: str
else:
    from fupareto import audit  # a package without imports of its own, and a function: see _AuditPackage

__all__ = [
    "FUPareto",
    "FedAvg",
    "Federation",
    "Local",
    "Loss",
    "Method",
    "Request",
    "Result",
    "Thresholds",
    "Tracking",
    "UserError",
    "__version__",
    "audit",
    "flower",
    "simulate",
    "train",
    "unlearn",
    "verify",
]

_HOMES = {
    "api": ("simulate", "train", "unlearn"),
    "audit.checks": ("Thresholds",),
    "errors": ("UserError",),
    "federation": ("Federation", "Local", "Request"),
    "methods": ("FUPareto", "FedAvg", "Method"),
    "result": ("Result",),
    "tasks.losses": ("Loss",),
    "tracking": ("Tracking",),
    "verification": ("verify",),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for: torch takes a second that ``--help`` does not have."""
    if name == "__version__":
        from importlib.metadata import version

        return version("fupareto")
    if name == "flower":
        return importlib.import_module("fupareto.flower")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"fupareto.{home}"), name)
    raise AttributeError(f"module 'fupareto' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


class _AuditPackage(ModuleType):
    """The package ``fupareto.audit``, which as a call is the function of that name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Audit a finished run; see :func:`fupareto.api.audit`."""
        from fupareto import api

        return api.audit(*args, **options)


if not TYPE_CHECKING:
    audit.__class__ = _AuditPackage
