"""The command inventory: list what still carries the forgotten, and remove it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fupareto.cli.common import Json
from fupareto.errors import UserError

if TYPE_CHECKING:
    from fupareto.evidence.inventory import Artefact

ELSEWHERE = "Backups, deployed copies and logs are not below this directory; see docs/deletion.md."


def inventory(
    path: Annotated[Path, typer.Argument(help="Directory with runs, such as runs.")],
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove what carries the forgotten and is needed no more; asks first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a purge.")] = False,
    as_json: Json = False,
) -> None:
    """List every file below a directory that still carries a forgotten client, sample or class, and why."""
    from fupareto.evidence import inventory as inventories
    from fupareto.evidence.purge import check
    from fupareto.evidence.purge import purge as remove

    found, remarks = inventories.take(path)
    if as_json:
        rows = [{**asdict(a), "path": str(a.path), "files": [*map(str, a.files)]} for a in found]
        typer.echo(json.dumps({"artefacts": rows, "remarks": remarks}, indent=2))
    else:
        _show(found, remarks)
    if not purge:
        return
    check(found)
    doomed = [a for a in found if a.removable]
    if not doomed:
        typer.echo("Nothing to purge.", err=True)
        return
    count = sum(len(a.files) for a in doomed)
    if not yes:
        _ask(f"Remove {count} files for good? Runs whose initial model goes cannot be audited or unlearned from again.")
    gone = remove(path, found)
    typer.echo(f"Removed {len(gone)} files; recorded in purges.jsonl of every run that answered a request.", err=True)


def _show(found: "list[Artefact]", remarks: list[str]) -> None:
    from fupareto.evidence.inventory import CARRIES, CLEAN, DAMAGED, NAMES, UNKNOWN

    for status in (DAMAGED, CARRIES, UNKNOWN, NAMES, CLEAN):
        for a in found:
            if a.status == status:
                several = f" ({len(a.files)} files)" if len(a.files) > 1 else ""
                whom = f": {'; '.join(a.requests)}" if a.requests and status == CARRIES else ""
                typer.echo(f"{status:8}{_words(a.bytes):>9}  {a.path}{several}{whom}\n{'':19}{a.why}")
    for remark in remarks:
        typer.echo(f"{'note':8}{'':9}  {remark}")
    if not found:
        typer.echo("No request was found; see the notes." if remarks else "No run here has answered a request.")
        return
    carrying = [a for a in found if a.status == CARRIES]
    size = _words(sum(a.bytes for a in carrying))
    removes = f"--purge removes {sum(a.removable for a in carrying)}."
    if damaged := sum(a.status == DAMAGED for a in found):
        removes = f"--purge removes nothing, because {damaged} run{'' if damaged == 1 else 's'} cannot be read."
    typer.echo(f"\n{len(carrying)} of {len(found)} artefacts carry the forgotten, {size}; {removes}")
    typer.echo(ELSEWHERE)


def _ask(text: str) -> None:
    try:
        sure = typer.confirm(text, err=True)
    except typer.Abort as error:  # nobody is there to answer
        raise UserError("nothing was removed; say --yes to purge without being asked") from error
    if not sure:
        raise UserError("nothing was removed")


def _words(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"
