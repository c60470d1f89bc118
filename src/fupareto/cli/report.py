"""The command report: write the HTML page of a run or of a bench."""

from pathlib import Path
from typing import Annotated

import typer

from fupareto.cli.common import report as write_report
from fupareto.errors import UserError


def report(
    run: Annotated[Path, typer.Argument(help="Run directory, directory of a bench, or the results.json of a bench.")],
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure of a run as SVG and PNG into this directory.")
    ] = None,
) -> None:
    """Write report.html, a single page that works offline; for a bench, its tables and figures too."""
    if run.is_file() or (run / "results.json").is_file():
        if figures is not None:
            raise UserError(f"--figures is for a run; the figures of the bench {run} are written beside its page")
        typer.echo("\n".join(map(str, _bench(run))))
        return
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


def _bench(path: Path) -> list[Path]:
    """Write a bench's tables, figures and page again; of a single file the page alone, beside it."""
    from fupareto.bench import output, stored
    from fupareto.report.bench.page import render

    if path.is_dir():
        results = stored.read(path / output.RESULTS)
        return output.write(path, results, stored.curves(results, path))
    return [output.put_file(path.with_suffix(".html"), render(stored.read(path), {}).encode())]
