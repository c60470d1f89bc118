"""Unlearning in a Flower federation: a ClientApp for its nodes and a ServerApp for its server.

This package needs the extra ``fupareto[flower]``. Names are imported on first use: a deployment may start a new process
for every message, which should not have to import the server's modules.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fupareto.flower.client import add_unlearning, client_app
    from fupareto.flower.engine import FlowerFederation
    from fupareto.flower.server import server_app

__all__ = ["FlowerFederation", "add_unlearning", "client_app", "server_app"]

_HOMES = {
    "FlowerFederation": "fupareto.flower.engine",
    "add_unlearning": "fupareto.flower.client",
    "client_app": "fupareto.flower.client",
    "server_app": "fupareto.flower.server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fupareto.flower' has no attribute '{name}'")
    try:
        importlib.import_module("fupareto.flower.compat").check_version()
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        raise ModuleNotFoundError(
            f"fupareto.flower.{name} needs Flower, which is not installed: pip install 'fupareto[flower]', or in a "
            "clone of the repository pip install '.[flower]'",
            name="flwr",
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
