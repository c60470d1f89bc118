"""Durable and private files: atomic replacement, appending, directories, and reading without following links.

Everything that is written to disk goes through this module. Files are created with mode 0600 and directories with mode
0700; with the environment variable ``FUPARETO_UMASK`` set, the user's umask decides. A function that returns has made
its change durable: the data are synced, and then the directory that names them.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from pathlib import Path

UMASK = "FUPARETO_UMASK"  # environment variable: leave the permissions of new files and directories to the umask
PART = re.compile(r"\.fupareto-[0-9a-f]{16}\.part")  # names of temporary files
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EBADF)  # file systems that cannot sync a directory


def put(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new one, never a part of it.

    The data are written to a temporary file of a random name in the same directory, which is then renamed. A symbolic
    link is replaced, not followed. Temporary files of processes that were killed are removed on the way.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    remove_parts(path.parent)
    part = path.with_name(f".fupareto-{secrets.token_hex(8)}.part")
    try:
        descriptor = _locked(part)
        try:
            _write(descriptor, data)
            os.fsync(descriptor)
            part.replace(path)
        finally:
            os.close(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):  # on a read-only disk, report the first error and not this one
            part.unlink()
        raise
    sync(path.parent)


def create(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet, or leave nothing behind."""
    try:
        _create(path, data)
    except FileExistsError:
        raise
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    sync(path.parent)


def append(path: Path, data: bytes) -> None:
    """Append to a file, which is created if it does not exist; if that fails, the file is as it was."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fresh = not path.exists()
    descriptor = os.open(path, flags, _modes()[0])
    try:
        size = os.fstat(descriptor).st_size
        try:
            _write(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if fresh:
        sync(path.parent)


def read(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file; a symbolic link, a pipe or a device is refused.

    Args:
        path: The file.
        most: Largest accepted size in bytes.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if most is not None and found.st_size > most:
            raise OSError(errno.EFBIG, f"it has {found.st_size} bytes, more than the {most} that are possible here")
        return file.read()


def make_directory(path: Path) -> list[Path]:
    """Create a directory and the missing ones above it; return those that were created, the innermost last."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    if not path.is_dir():
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    made = []
    for place in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            place.mkdir(_modes()[1])
            made.append(place)
            sync(place.parent)
    return made


def remove(path: Path) -> None:
    """Remove a file or a symbolic link, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        sync(path.parent)


def remove_empty(path: Path) -> None:
    """Remove a directory if it exists and is empty."""
    try:
        path.rmdir()
    except OSError:
        return
    sync(path.parent)


def remove_parts(path: Path) -> None:
    """Remove the temporary files that killed processes have left in a directory; those in use are locked."""
    for entry in [*path.iterdir()]:
        if PART.fullmatch(entry.name):
            with contextlib.suppress(OSError):  # in use, gone, a link, or of somebody else
                descriptor = os.open(entry, _READ)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(entry)
                finally:
                    os.close(descriptor)


def sync(path: Path) -> None:
    """Make the entries of a directory durable, where the file system can."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def _locked(part: Path) -> int:
    """Create a temporary file and return its descriptor; the file is locked until it is closed."""
    while True:
        descriptor = os.open(part, _NEW, _modes()[0])
        with contextlib.suppress(OSError):  # a file system without locks: then nobody can take it for abandoned
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # removed before it was locked, as one that a killed process had left


def _create(path: Path, data: bytes) -> None:
    descriptor = os.open(path, _NEW, _modes()[0])
    try:
        _write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _modes() -> tuple[int, int]:
    """Return the modes of new files and directories, before the umask."""
    return (0o666, 0o777) if os.environ.get(UMASK) else (0o600, 0o700)
