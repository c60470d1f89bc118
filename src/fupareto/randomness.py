"""Named random streams from one seed, so that no draw depends on the order of other draws."""

import hashlib

import numpy as np


def derive(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed for the stream called ``names`` under ``seed`` (SHA-256 of both)."""
    key = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the numpy generator of the stream called ``names``."""
    return np.random.default_rng(derive(seed, *names))
