"""Lock of a run directory: one process writes to it at a time.

The lock is an advisory lock of the operating system on the file ``.lock``, which names its holder. It ends with its
process, so that a killed run leaves nothing to clear: the next process takes over the file and removes it at its end.
"""

import contextlib
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fupareto.errors import UserError

FILE = ".lock"
_held: dict[tuple[int, int], int] = {}  # device and inode of a directory -> thread of this process that has its lock


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of an existing directory; the thread that has it may take it again.

    Raises:
        UserError: Another process or thread has the lock.
        OSError: The lock cannot be created, for instance in a directory that is read-only.
    """
    found = path.stat()
    key, me = (found.st_dev, found.st_ino), threading.get_ident()
    if _held.get(key) == me:
        yield
        return
    if key in _held:
        raise UserError(f"{path} is in use by another thread of this process; wait until it has finished")
    descriptor = _taken(path)
    _held[key] = me
    try:
        yield
    finally:
        del _held[key]
        with contextlib.suppress(OSError):
            (path / FILE).unlink()  # before the lock ends, so that nobody waits for a file that is about to go
        os.close(descriptor)


def _taken(path: Path) -> int:
    """Return the descriptor of the lock file after taking the lock."""
    while True:
        descriptor = os.open(path / FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same(descriptor, path / FILE):
                about = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat()}
                with contextlib.suppress(OSError):  # a full disk: the lock holds without a name
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, json.dumps(about).encode(), 0)
                return descriptor
        except BlockingIOError:
            raise UserError(
                f"{path} is in use by {_holder(descriptor)}; wait until it has finished, or end it first"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the holder before us removed this file after we had opened it


def _same(descriptor: int, path: Path) -> bool:
    """Return whether a path still names the open file."""
    try:
        now = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(now, os.fstat(descriptor))


def _holder(descriptor: int) -> str:
    """Return who has the lock, in words."""
    try:
        about = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(about['pid'])} on {str(about['host'])[:99]!r} since {str(about['since'])[:19]} UTC"
    except (ValueError, KeyError, TypeError):
        return "another process"
    finally:
        os.close(descriptor)
