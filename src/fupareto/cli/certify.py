"""The command certify: write the certificate of a run."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fupareto.cli.common import Json, Key, say


def certify(
    run: Annotated[Path, typer.Argument(help="Run directory of a finished `fupareto unlearn`.")],
    out: Annotated[
        Path | None, typer.Option(help="File or directory to write.", show_default="certificate.json in the run")
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(help="Certificate of the previous request in the same federation.")
    ] = None,
    key: Key = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Address of an RFC 3161 timestamp authority, which confirms the time.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the certificate of a run: its request, models, measurements, checks and files, with SHA-256 hashes."""
    from fupareto import evidence

    signer = evidence.signer(key) if key else None
    path = evidence.certify(run, out, previous, say=partial(say, False), signer=signer)
    if timestamp:
        from fupareto.evidence import timestamps

        timestamps.stamp(path, timestamp)
    if as_json:
        typer.echo(path.read_text())
        return
    typer.echo(evidence.describe(evidence.load(path)))
    signed = (
        f"Signed by {signer.name} ({signer.id})." if signer else "It is not signed (--key); see docs/certificate.md."
    )
    typer.echo(f"Certificate: {path}\n{signed}")
