"""The command certify: write the certificate of a run."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fupareto.cli.common import Json, say


def certify(
    run: Annotated[Path, typer.Argument(help="Run directory of a finished `fupareto unlearn`.")],
    out: Annotated[
        Path | None, typer.Option(help="File or directory to write.", show_default="certificate.json in the run")
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(help="Certificate of the request before this one, in the same federation.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's certificate: its request, models, numbers, checks and files, fixed by SHA-256."""
    from fupareto import evidence

    path = evidence.certify(run, out, previous, say=partial(say, False))
    if as_json:
        typer.echo(path.read_text())
        return
    typer.echo(evidence.describe(evidence.load(path)))
    typer.echo(f"Certificate: {path}\nIt does not say who wrote it: sign it (docs/certificate.md).")
