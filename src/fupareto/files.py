"""Atomic writing of files."""

import contextlib
import os
from pathlib import Path


def put(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new one, never a part of it.

    The data are written to a temporary file in the same directory, which is then renamed.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):  # on a read-only disk, report the first error and not this one
            part.unlink(missing_ok=True)
