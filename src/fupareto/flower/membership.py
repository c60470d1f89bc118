"""Membership file: which client is which key.

A TOML file on the server with one table, ``[clients]``, from client ids to the public keys of their SuperNodes: the
text of a ``.pub`` file, or the path of one, relative to the membership file.

    [clients]
    hospital-7 = "keys/hospital-7.key.pub"

A node is then the client whose key it has, whatever it says, and a node with another key takes no part.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fupareto.errors import UserError

NONE = "none: every node said itself which client it is"


@dataclass(frozen=True)
class Membership:
    """Clients by their public keys.

    Attributes:
        clients: Client by public key, in DER.
        sha256: Hash of the file.
    """

    clients: Mapping[bytes, str]
    sha256: str

    @classmethod
    def read(cls, path: Path) -> "Membership":
        """Read a membership file; UserError names what is wrong with it."""
        try:
            data = path.read_bytes()
            table = tomllib.loads(data.decode())["clients"]
            entries = {str(client): _text(path, value) for client, value in table.items()}
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, AttributeError, TypeError) as error:
            raise UserError(
                f"{path} is not a membership file ({error}); it needs a table [clients] with lines such as "
                'hospital-7 = "keys/hospital-7.key.pub"'
            ) from error
        clients: dict[bytes, str] = {}
        for client, text in entries.items():
            key = _der(text.encode(), f"{path}: the key of client '{client}'")
            if key in clients:
                raise UserError(f"{path}: clients '{clients[key]}' and '{client}' have the same key")
            clients[key] = client
        if len(clients) < 2:
            raise UserError(f"{path} names {len(clients)} clients; a federation has at least two")
        return cls(clients, hashlib.sha256(data).hexdigest())

    def of(self, public_key: bytes) -> str | None:
        """Return the client with a public key (PEM); None for a key that nobody has."""
        try:
            return self.clients.get(_der(public_key, "the key of a node"))
        except UserError:
            return None

    def told(self) -> dict[str, object]:
        """Return what a run's summary says of the membership."""
        return {"sha256": self.sha256, "clients": sorted(self.clients.values())}


def _text(path: Path, value: object) -> str:
    text = str(value).strip()
    return text if " " in text or text.startswith("---") else (path.parent / text).read_text()


def _der(text: bytes, whose: str) -> bytes:
    """Return a public key in OpenSSH's format or PEM as DER, by which keys are compared."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
        load_ssh_public_key,
    )

    try:
        key = load_pem_public_key(text) if text.lstrip().startswith(b"---") else load_ssh_public_key(text)
        return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{whose} is not a public key: {error}") from error
