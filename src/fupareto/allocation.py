"""Allocation of memory by the C library."""

import ctypes
import os

SETTINGS = {-1: 2**31 - 1, -3: 2**30, -2: 2**26}  # of mallopt: when to trim, from which size to map, what to leave


def keep_freed_memory() -> bool:
    """Keep memory that was freed for the next tensors, instead of giving it back to the system; return whether it is.

    glibc returns every block above 32 MB at once, and the system hands it out again page by page, cleared: with batches
    of 200, a fourth of the time of a training step of the CNN. What is left at the end is what a heap of a thread holds
    at most; without it, its last block is returned all the same. Settings hold for the whole process, so the command
    line makes them and the library does not. Those of the user's environment (``MALLOC_…``) have precedence. Without
    glibc nothing happens.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(*pair) for pair in SETTINGS.items())
