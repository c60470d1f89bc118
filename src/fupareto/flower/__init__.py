"""How does a Flower federation forget? An ordinary ClientApp for its nodes, an ordinary ServerApp for its server.

Needs the extra ``fupareto[flower]``. Each side imports what it needs when it is asked for: a deployment may start a new
process for every message, which should not wait for the server's half.
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
    return getattr(importlib.import_module(_HOMES[name]), name)
