"""Purge of what carries the forgotten.

The record is written before anything is removed (purges.py): a purge that was killed is repeated.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fupareto import files
from fupareto.errors import UserError
from fupareto.evidence import purges, reading
from fupareto.evidence.inventory import DAMAGED, NAMES, Artefact, take
from fupareto.run.directory import Run

INITIAL = "initial.safetensors"


def check(artefacts: Sequence[Artefact]) -> None:
    """Refuse a purge where a run is not readable: what is needed of the others is not known.

    Args:
        artefacts: The inventory.
    """
    for damaged in (artefact for artefact in artefacts if artefact.status == DAMAGED):
        raise UserError(f"nothing was removed: {damaged.path} is {damaged.why}. Repair it, or move it elsewhere")


def purge(where: Path, artefacts: Sequence[Artefact]) -> list[Path]:
    """Remove the artefacts that can be removed, record that in every run that answered a request, return the files.

    Nothing is removed if a run is not readable, or if anything has changed since the inventory was taken.

    Args:
        where: Directory of the inventory.
        artefacts: The inventory, as :func:`fupareto.evidence.inventory.take` returns it.
    """
    check(artefacts)
    gone = _doomed(artefacts)
    runs = [Run(artefact.path) for artefact in artefacts if artefact.status == NAMES]  # one of every run
    with contextlib.ExitStack() as stack:
        for run in runs:  # a run in use is refused before anything is removed
            stack.enter_context(run.locked())
        now, _ = take(where)
        check(now)
        if set(_doomed(now)) != set(gone):
            raise UserError(f"nothing was removed: {where} has changed since it was listed; purge again")
        try:
            removed = [(path, reading.hash_file(path), path.stat().st_size) for path in gone]
            answered = [run for run in runs if not run.trains]
            for run in answered if removed else ():
                purges.record(run.path, [_entry(run.path, *one) for one in removed])
            last = [path for path in gone if path.name == INITIAL]  # they say which models were passed on
            for some in ([path for path in gone if path not in last], last):
                for run in runs:
                    _remove(run, [path for path in some if _owner(path, runs) == run.path])
        except OSError as error:
            raise UserError(
                f"cannot purge {error.filename or where}: {error.strerror}; purge again to go on"
            ) from error
    return gone


def _doomed(artefacts: Sequence[Artefact]) -> list[Path]:
    return [path for artefact in artefacts if artefact.removable for path in artefact.files]


def _owner(path: Path, runs: Sequence[Run]) -> Path:
    """Return the innermost run that a file belongs to."""
    return max((run.path for run in runs if path.is_relative_to(run.path)), key=lambda p: len(p.parts))


def _remove(run: Run, own: Sequence[Path]) -> None:
    """Remove files of a run, which its manifest does not miss from then on, and directories that are empty then."""
    if not own:
        return
    manifest = run.manifest()
    manifest.purge([str(path.relative_to(run.path)) for path in own])
    for path in own:
        files.remove(path)
    folders = {folder for path in own for folder in path.parents if run.path in folder.parents}
    for folder in sorted(folders, reverse=True):
        if (folder / "clients.json").is_file() and not any(folder.glob("*.safetensors")):
            files.remove(folder / "clients.json")  # who took part in a round of the history
        files.remove_empty(folder)


def _entry(run: Path, path: Path, sha256: str, size: int) -> dict[str, Any]:
    return {"path": os.path.relpath(path, run), "sha256": sha256, "bytes": size}
