"""Ed25519 keys: made, read and trusted; a private key is written to its file and never printed.

A key pair is two files, ``NAME.key`` (PKCS 8 in PEM, readable by its owner only) and ``NAME.pub`` (PEM). Keys of
OpenSSH are read as well. The *name* of a trusted key is that of its file: ``client-7.pub`` belongs to client 7 and may
sign what that client measured, nothing else; every other key belongs to an operator.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fupareto.errors import UserError
from fupareto.evidence.reading import read

CLIENT = "client-"  # prefix of the names of clients' keys
PASSPHRASE = "FUPARETO_PASSPHRASE"  # environment variable of the passphrase of a protected key


def key_name(client: str) -> str:
    """Return the name that the key of a client has among trusted keys."""
    return CLIENT + quote(client, safe="")


@dataclass(frozen=True)
class Signer:
    """A private key with its name."""

    name: str
    key: Ed25519PrivateKey

    @property
    def id(self) -> str:
        """SHA-256 of the public key."""
        return key_id(self.key.public_key())

    def sign(self, data: bytes) -> bytes:
        """Return the signature of data."""
        return self.key.sign(data)


@dataclass(frozen=True)
class Trusted:
    """Public keys that a verifier trusts, by name."""

    keys: Mapping[str, Ed25519PublicKey]

    def signer(self, data: bytes, signature: bytes) -> str | None:
        """Return the name of the trusted key that made a signature; None if none of them did."""
        for name, key in self.keys.items():
            try:
                key.verify(signature, data)
            except InvalidSignature:
                continue
            return name
        return None


def key_id(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of a public key (DER, SubjectPublicKeyInfo)."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def make(name: str, folder: Path, passphrase: str = "") -> tuple[Path, str]:
    """Make a key pair and return the path of its public half and its id; existing files are never replaced.

    Args:
        name: Name of the key, which becomes the name of its files.
        folder: Directory to write to.
        passphrase: Passphrase that protects the private key; empty for none.
    """
    if not name or name != Path(name).name or not name.isprintable() or name.startswith("."):
        raise UserError(f"{name!r} cannot be the name of a key; use letters, digits and hyphens, such as operator")
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    for path in (private, public):
        if path.exists():
            raise UserError(f"{path} already exists; a key is never replaced: choose another name")
    key = Ed25519PrivateKey.generate()
    lock = serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret)
        public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    except OSError as error:
        raise UserError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    return public, key_id(key.public_key())


def signer(path: Path) -> Signer:
    """Read a private key; the passphrase of a protected one is in the environment variable FUPARETO_PASSPHRASE."""
    data, secret = read(path), os.environ.get(PASSPHRASE, "").encode() or None
    load = (
        serialization.load_ssh_private_key
        if b"BEGIN OPENSSH PRIVATE KEY" in data
        else serialization.load_pem_private_key
    )
    try:
        key = load(data, secret)
    except TypeError as error:  # a passphrase that is missing, or one for a key that has none
        if secret is None:
            raise UserError(f"the key {path} is protected; set {PASSPHRASE} to its passphrase") from error
        key = load(data, None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} is not a private key, or {PASSPHRASE} is not its passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{path} is not an Ed25519 key; make one with: fupareto keys make operator")
    if path.stat().st_mode & 0o007:
        raise UserError(f"everybody on this machine may use the private key {path}; first run: chmod 600 {path}")
    return Signer(path.stem, key)


def public(path: Path) -> Ed25519PublicKey:
    """Read a public key, in PEM or as OpenSSH writes it."""
    data = read(path)
    try:
        load = serialization.load_ssh_public_key if data.startswith(b"ssh-") else serialization.load_pem_public_key
        key = load(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} is not a public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise UserError(f"{path} is not an Ed25519 key")
    return key


def trusted(path: Path) -> Trusted:
    """Read the keys that are trusted: one .pub file, or all of a directory."""
    files = sorted(path.glob("*.pub")) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{path} has no public key (*.pub); make a pair with: fupareto keys make operator")
    return Trusted({file.stem: public(file) for file in files})
