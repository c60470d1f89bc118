"""A disk that loses power: what was written and not synced may be gone, in whole, in part or out of order.

:class:`Disk` takes the place of the functions of :mod:`os` that change files, passes them on, and keeps two pictures of
the tree below a directory: as processes see it, and as it is durably on the disk. The content of a file is durable once
the file is synced, and a name once its directory is. :meth:`Disk.after` builds the tree that is found after a loss of
power, in the manner of the crash tests of SQLite.
"""

import copy
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Inode:
    """A file: its content now, and on the disk."""

    now: bytes = b""
    durable: bytes | None = None  # never synced


@dataclass
class Folder:
    """A directory: its entries now, those on the disk, and the changes in between."""

    now: dict[str, "Inode | Folder"] = field(default_factory=dict)
    durable: dict[str, "Inode | Folder"] = field(default_factory=dict)
    pending: list[tuple[str, "Inode | Folder | None"]] = field(default_factory=list)

    def change(self, name: str, value: "Inode | Folder | None") -> None:
        if value is None:
            self.now.pop(name, None)
        else:
            self.now[name] = value
        self.pending.append((name, value))

    def sync(self) -> None:
        self.durable, self.pending = dict(self.now), []


class Disk:
    """The tree below ``root``, which must exist and be empty.

    Attributes:
        points: The tree before every operation that changes it: power may be lost there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = Folder()
        self.points: list[Folder] = []
        self.open: dict[int, Inode | Folder] = {}
        names = ("open", "write", "fsync", "ftruncate", "close", "replace", "unlink", "mkdir", "rmdir")
        self.real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in names}

    def install(self, patch: Any) -> None:
        """Take the place of the functions of ``os``."""
        for name in self.real:
            patch.setattr(os, name, getattr(self, f"_{name}"))

    def after(self, point: int, target: Path, seed: int | None) -> None:
        """Write the tree that is found after power was lost at a point.

        Args:
            point: Number of the operation that was not done any more.
            target: Directory to write the tree to.
            seed: Of what is there by chance; without one, nothing that was not synced is there.
        """
        self._build(self.points[point], target, random.Random(seed) if seed is not None else None)

    def _build(self, folder: Folder, target: Path, draw: random.Random | None) -> None:
        target.mkdir(parents=True, exist_ok=True)
        entries = dict(folder.durable)
        for name, value in folder.pending:
            if draw is not None and draw.random() < 0.5:
                if value is None:
                    entries.pop(name, None)
                else:
                    entries[name] = value
        for name, value in entries.items():
            if isinstance(value, Folder):
                self._build(value, target / name, draw)
            else:
                (target / name).write_bytes(_content(value, draw))

    # The functions of os -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.points.append(copy.deepcopy(self.tree))

    def _find(self, path: Any) -> tuple[Folder, str] | None:
        """Return the folder of a path below the root, and its name there."""
        try:
            parts = Path(path).absolute().relative_to(self.root).parts
        except ValueError:
            return None
        folder: Inode | Folder = self.tree
        for part in parts[:-1]:
            assert isinstance(folder, Folder)
            folder = folder.now[part]
        assert isinstance(folder, Folder)
        return folder, parts[-1] if parts else ""

    def _open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        found = self._find(path) if not isinstance(path, int) else None
        creates = found is not None and flags & os.O_CREAT and found[1] not in found[0].now
        if creates:
            self._tick()
        descriptor: int = self.real["open"](path, flags, mode, **more)
        if found is not None:
            folder, name = found
            if creates:
                folder.change(name, Inode())
            self.open[descriptor] = folder.now[name] if name else self.tree
        return descriptor

    def _write(self, descriptor: int, data: Any) -> int:
        inode = self.open.get(descriptor)
        if isinstance(inode, Inode):
            self._tick()
            inode.now += bytes(data)
        written: int = self.real["write"](descriptor, data)
        return written

    def _ftruncate(self, descriptor: int, size: int) -> None:
        if isinstance(inode := self.open.get(descriptor), Inode):
            inode.now = inode.now[:size]
        self.real["ftruncate"](descriptor, size)

    def _fsync(self, descriptor: int) -> None:
        inode = self.open.get(descriptor)
        if inode is not None:
            self._tick()
            if isinstance(inode, Folder):
                inode.sync()
            else:
                inode.durable = inode.now
        self.real["fsync"](descriptor)

    def _close(self, descriptor: int) -> None:
        self.open.pop(descriptor, None)
        self.real["close"](descriptor)

    def _replace(self, source: Any, target: Any, **more: Any) -> None:
        self._tick()
        self.real["replace"](source, target, **more)
        (folder, old), (other, new) = self._find(source) or (None, ""), self._find(target) or (None, "")
        assert folder is not None
        assert folder is other
        inode = folder.now[old]
        folder.now.pop(old)
        folder.now[new] = inode
        folder.pending += [(new, inode), (old, None)]

    def _unlink(self, path: Any, **more: Any) -> None:
        self._tick()
        self.real["unlink"](path, **more)
        if found := self._find(path):
            found[0].change(found[1], None)

    def _mkdir(self, path: Any, mode: int = 0o777, **more: Any) -> None:
        self._tick()
        self.real["mkdir"](path, mode, **more)
        if found := self._find(path):
            found[0].change(found[1], Folder())

    def _rmdir(self, path: Any, **more: Any) -> None:
        self._tick()
        self.real["rmdir"](path, **more)
        if found := self._find(path):
            found[0].change(found[1], None)


def _content(inode: Inode, draw: random.Random | None) -> bytes:
    """Return what is found in a file: what was synced, or, by chance, more or less of what was not."""
    durable = inode.durable or b""
    if draw is None or inode.now == inode.durable:
        return durable
    kind = draw.randrange(4)
    if kind == 0:
        return durable
    if kind == 1:
        return inode.now
    if kind == 2:  # a part of what was appended
        return inode.now[: draw.randrange(len(durable), len(inode.now) + 1)] if inode.now else b""
    return durable + bytes(len(inode.now) - len(durable))  # room for it, which was not written yet
