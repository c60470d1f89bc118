"""Removal of an earlier demo: only of what a demo has made, file by file, and never through a symbolic link.

A demo marks the directory that it creates with ``demo.json``. Before anything is removed, everything in the directory
must be a file of a run that the demo makes; a note, a certificate, another run or a link is refused, and all is kept.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fupareto import files
from fupareto.errors import UserError
from fupareto.run.directory import Run
from fupareto.run.lock import FILE as LOCK
from fupareto.run.manifest import FILE as MANIFEST
from fupareto.run.storage import DOCUMENTS, MODELS
from fupareto.vocabulary import RETRAINED, SECOND

MARK = "demo.json"
RUNS = ("training", RETRAINED, SECOND)  # within the demo's own run
CHECKPOINT = ("checkpoint", "replay")  # directories of states
OWN = {*DOCUMENTS, *MODELS, MANIFEST, LOCK}


def mark(out: Path) -> None:
    """Mark a directory as that of a demo; it must be marked already, or new, or empty."""
    if made_by_demo(out):
        return
    with Run.held(out, resume=False):
        if not all(path.name == LOCK or files.PART.fullmatch(path.name) for path in out.iterdir()):
            raise UserError(f"{out} already exists; choose another --out")
        try:
            content = {"made": datetime.now(UTC).isoformat(timespec="seconds"), "by": "fupareto demo"}
            files.put(out / MARK, json.dumps(content).encode() + b"\n")
        except OSError as error:
            raise UserError(f"cannot write {out / MARK}: {error.strerror}") from error


def made_by_demo(out: Path) -> bool:
    """Return whether a demo has created a directory."""
    return (out / MARK).is_file() and not (out / MARK).is_symlink() and not out.is_symlink()


def discard(out: Path) -> None:
    """Remove an earlier demo, or refuse and remove nothing if anything else is in its directory."""
    with contextlib.ExitStack() as stack:
        for folder in (out, *(out / name for name in RUNS)):
            if folder.is_dir() and not folder.is_symlink():
                stack.enter_context(Run(folder).locked())  # a demo that still runs is refused
        own = [*_own(out, depth=0)]
        for path in own:
            if not path.is_dir() and path.name != LOCK:
                files.remove(path)
    for folder in (*(path for path in own if path.name in (*RUNS, *CHECKPOINT)), out):  # innermost first
        files.remove_empty(folder)


def _own(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files and directories of a demo, innermost first; refuse anything else."""
    known = OWN | ({MARK} if depth == 0 else set())
    within = {0: (*RUNS, *CHECKPOINT), 1: CHECKPOINT}.get(depth, ())
    state = re.compile(r"state\.safetensors|\d{5}(\.after)?\.safetensors")
    own = state.fullmatch if folder.name in CHECKPOINT else known.__contains__
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False) and entry.name in within:
            yield from _own(path, depth + 1)
        elif not entry.is_file(follow_symlinks=False) or not (own(entry.name) or files.PART.fullmatch(entry.name)):
            raise UserError(f"{path} was not made by a demo, and a new demo would delete it; choose another --out")
        yield path
