"""Purge of what carries the forgotten, recorded in a chain that follows the certificate of each run.

    {"format": 1, "created": …, "removed": [{"path": …, "sha256": …, "bytes": …}, …], "previous": …, "digest": …}

``purges.jsonl`` in a run has one such line per purge. ``previous`` is the SHA-256 of the line before it, for the first
line that of certificate.json, or null without one; ``digest`` is the SHA-256 of the rest of the line as canonical JSON.
Paths are relative to the run. The record is written before anything is removed: a purge that was killed is repeated.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fupareto import files
from fupareto.errors import UserError
from fupareto.evidence import reading
from fupareto.evidence.findings import FAILED, OK, Finding
from fupareto.evidence.inventory import Artefact, find
from fupareto.run.directory import Run

FILE = "purges.jsonl"


def purge(where: Path, artefacts: Sequence[Artefact]) -> list[Path]:
    """Remove the artefacts that can be removed, record that in every run that answered a request, return the files.

    Args:
        where: Directory of the inventory.
        artefacts: The inventory, as :func:`fupareto.evidence.inventory.take` returns it.
    """
    gone = [path for artefact in artefacts if artefact.removable for path in artefact.files]
    runs = [one.run for one in find(where)[0]]
    with contextlib.ExitStack() as stack:
        for run in runs:  # a run in use is refused before anything is removed
            stack.enter_context(run.locked())
        try:
            removed = [(path, reading.hash_file(path), path.stat().st_size) for path in gone]
            answered = [run for run in runs if not run.trains]
            for run in answered if removed else ():
                _record(run.path, [_entry(run.path, *one) for one in removed])
            for run in runs:
                own = [path for path in gone if _owner(path, runs) == run.path]
                _remove(run, own)
        except OSError as error:
            raise UserError(
                f"cannot purge {error.filename or where}: {error.strerror}; purge again to go on"
            ) from error
    return gone


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


def _record(run: Path, removed: list[dict[str, Any]]) -> None:
    """Append a line to the chain of a run."""
    lines = _lines(run)
    certificate = run / "certificate.json"
    first = reading.hash_file(certificate) if certificate.is_file() else None
    created = datetime.now(UTC).isoformat(timespec="seconds")
    previous = reading.sha256(lines[-1]) if lines else first
    content = {"format": 1, "created": created, "removed": removed, "previous": previous}
    line = json.dumps({**content, "digest": reading.sha256(content)}, ensure_ascii=False).encode()
    files.append(run / FILE, line + b"\n")


def _lines(run: Path) -> list[bytes]:
    return reading.read(run / FILE).splitlines() if (run / FILE).is_file() else []


def findings(run: Path) -> Iterator[Finding]:
    """Check the chain of purges of a run, and that what was purged is gone; nothing where there was no purge."""
    certificate = run / "certificate.json"
    expected = reading.hash_file(certificate) if certificate.is_file() else None
    count = 0
    for number, line in enumerate(_lines(run), 1):
        try:
            entry = reading.parse(run / FILE, line)
            content = {key: value for key, value in entry.items() if key != "digest"}
            paths = [str(one["path"]) for one in entry["removed"]]
            whole = entry["digest"] == reading.sha256(content)
        except (UserError, KeyError, TypeError) as error:
            yield Finding(FAILED, FILE, f"Line {number} of {run / FILE} cannot be read: {error}.")
            return
        if not whole or (entry["previous"] != expected and not (number == 1 and entry["previous"] is None)):
            yield Finding(
                FAILED, FILE, f"Line {number} of {run / FILE} was changed, or does not follow what is before it."
            )
            return
        if back := [path for path in paths if (run / path).is_file()]:
            text = f"{run / back[0]} was purged at {entry['created']}, but is there; purge it again."
            yield Finding(FAILED, FILE, text)
        expected, count = reading.sha256(line), count + len(paths)
    if count:
        yield Finding(OK, FILE, f"{count} files that carried the forgotten were purged, which {run / FILE} records.")
