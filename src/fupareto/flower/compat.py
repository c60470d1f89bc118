"""Versions of Flower: which are supported, and everything that differs between them.

The other modules use Flower's public names (``flwr.app``, ``flwr.clientapp``, ``flwr.serverapp``) alone.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from fupareto.errors import UserError

if TYPE_CHECKING:
    from flwr.serverapp import Grid

OLDEST, BELOW = (1, 41), (2, 0)  # the versions that are accepted
TESTED = ("1.41.0", "1.42.0")


def check_version(found: str | None = None) -> None:
    """Raise UserError for a version of Flower that is not supported.

    Args:
        found: The version; by default the installed one.
    """
    try:
        found = found or version("flwr")
    except PackageNotFoundError:
        return  # the import says so
    numbers = tuple(int(part) if part.isdigit() else 0 for part in found.split(".")[:2])
    if not OLDEST <= numbers < BELOW:
        raise UserError(
            f"Flower {found} is not supported: fupareto needs flwr>={'.'.join(map(str, OLDEST))},<{BELOW[0]} and is "
            f"tested with {' and '.join(TESTED)}; install one of these"
        )


def public_keys(grid: "Grid") -> dict[int, bytes]:
    """Return the public keys (PEM) of the connected nodes, as the SuperLink knows them.

    With ``--enable-supernode-auth`` the SuperLink has checked that the node holds the private key.
    """
    nodes = getattr(grid, "get_nodes", None)
    if nodes is None:
        raise UserError(
            f"this grid ({type(grid).__name__}) does not know its nodes' keys, so a membership file cannot be checked"
        )
    return {int(node.node_id): bytes(node.public_key) for node in nodes()}
