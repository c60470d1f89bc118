"""Chain of purges that follows the certificate of a run.

    {"format": 1, "created": …, "removed": [{"path": …, "sha256": …, "bytes": …}, …], "previous": …, "digest": …}

``purges.jsonl`` in a run has one such line per purge. ``previous`` is the SHA-256 of the line before it, for the first
line that of certificate.json, or null without one; ``digest`` is the SHA-256 of the rest of the line as canonical JSON.
Paths are relative to the run. This module does not import torch.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fupareto import files
from fupareto.errors import UserError
from fupareto.evidence import reading
from fupareto.evidence.findings import FAILED, OK, Finding

FILE = "purges.jsonl"


def record(run: Path, removed: list[dict[str, Any]]) -> None:
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


def removed(run: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that purges of a run removed, by path; :func:`findings` checks the chain."""
    found: dict[str, str] = {}
    for line in _lines(run):
        try:
            found |= {str(one["path"]): str(one["sha256"]) for one in reading.parse(run / FILE, line)["removed"]}
        except (UserError, KeyError, TypeError):
            break  # what follows a line that cannot be read is no record
    return found


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
