"""How is a file replaced? Whole or not at all."""

import contextlib
import os
from pathlib import Path


def put(path: Path, data: bytes) -> None:
    """Write beside the target and rename: a reader sees the old file or the new one, never half of it."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):  # on a disk that is read-only, what went wrong before is what to say
            part.unlink(missing_ok=True)
