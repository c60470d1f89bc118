"""The command report: write the HTML report of a run."""

from pathlib import Path
from typing import Annotated

import typer

from fupareto.cli.common import report as write_report
from fupareto.errors import UserError


def report(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure as SVG and PNG into this directory.")
    ] = None,
) -> None:
    """Write report.html, a single page that works offline."""
    from fupareto.run.directory import Run

    place = Run.open(run)
    typer.echo(write_report(place))
    if figures is not None:
        from fupareto.report import write_figures

        try:
            written = write_figures(figures, place.summary, place.rounds(), place.config, place.audit)
        except OSError as error:
            raise UserError(f"cannot write into {figures}: {error.strerror}") from error
        typer.echo("\n".join(map(str, written)))
