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
        Path | None, typer.Option(help="Certificate of the previous request in the same federation.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the certificate of a run: its request, models, measurements, checks and files, with SHA-256 hashes."""
    from fupareto import evidence

    path = evidence.certify(run, out, previous, say=partial(say, False))
    if as_json:
        typer.echo(path.read_text())
        return
    typer.echo(evidence.describe(evidence.load(path)))
    typer.echo(f"Certificate: {path}\nIt is not signed; see docs/certificate.md.")
