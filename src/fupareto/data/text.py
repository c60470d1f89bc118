"""Text as bytes: one client per directory or file, in windows of equal length; each window is its own target."""

import sysconfig
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fupareto.errors import UserError

WINDOW = 64  # bytes per sample
BYTES = 256  # different tokens
MOST = 60_000  # bytes that are read of one client
SUFFIXES = (".txt", ".md", ".py", ".rst", ".csv", ".json", ".log")
PACKAGES = ("asyncio", "concurrent", "email", "html", "http", "importlib", "json", "logging", "unittest", "xml")


def read_text(folder: Path, window: int = WINDOW) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read a directory whose entries are the clients: directories of text files, or single text files.

    Returns:
        Windows of bytes (N, window), and the number of the client of each (N,), in the order of the entries' names.
    """
    if not folder.is_dir():
        raise UserError(f"the directory {folder} does not exist")
    entries = sorted(e for e in folder.iterdir() if e.is_dir() or e.suffix in SUFFIXES)
    parts = [(entry, _windows(_bytes(entry), window)) for entry in entries if not entry.name.startswith((".", "_"))]
    parts = [(entry, windows) for entry, windows in parts if len(windows) > 1]
    if len(parts) < 2:
        raise UserError(
            f"{folder} has text of {len(parts)} clients, but a federation needs two; put the text of each client into "
            f"a file or directory of its own ({', '.join(SUFFIXES)})"
        )
    return _joined([windows for _, windows in parts])


def standard_library(window: int = WINDOW) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the sources of ten packages of Python's standard library, one client each."""
    root = Path(sysconfig.get_path("stdlib"))
    return _joined([_windows(_bytes(root / name), window) for name in PACKAGES])


def _bytes(entry: Path) -> bytes:
    """Return the text of a client, at most the first ``MOST`` bytes, files in the order of their names."""
    files = [entry] if entry.is_file() else sorted(f for f in entry.rglob("*") if f.suffix in SUFFIXES)
    found = b""
    for file in files:
        if len(found) >= MOST:
            break
        try:
            found += file.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}") from error
    return found[:MOST]


def _windows(text: bytes, window: int) -> NDArray[np.int64]:
    count = len(text) // window
    return np.frombuffer(text[: count * window], np.uint8).reshape(count, window).astype(np.int64)


def _joined(parts: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return np.concatenate(parts), owner.astype(np.int64)
