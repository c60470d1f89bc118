"""The command compare: show runs side by side."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fupareto.cli.common import Json
from fupareto.errors import UserError
from fupareto.files import put


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[Path | None, typer.Option(help="Also write the comparison as an HTML page.")] = None,
    as_json: Json = False,
) -> None:
    """Show runs side by side."""
    from fupareto.run.directory import Run

    places = [Run.open(path) for path in runs]
    summaries = {str(place.path): place.summary for place in places}
    if out is not None:
        from fupareto.report import render_comparison

        html = render_comparison(
            [(str(p.path), p.summary, p.rounds()) for p in places], {str(p.path): p.audit for p in places}
        )
        try:
            put(out, html.encode())
        except OSError as error:
            raise UserError(f"cannot write {out}: {error.strerror}") from error
        typer.echo(f"Comparison: {out}", err=True)
    if as_json:
        typer.echo(json.dumps(summaries, indent=2))
    else:
        from fupareto import paper
        from fupareto.report.terminal import comparison_table, show
        from fupareto.tally import tally_of, words

        beside = {str(p.path): paper.beside(summaries[str(p.path)], p.config.get("method", {})) for p in places}
        show(comparison_table(summaries, beside))
        for place in places:
            if place.summary["forget"] and place.summary.get("final") != "initial":
                typer.echo(f"{place.path}: checks {words(tally_of(place.summary, place.audit))}")
        if any(beside.values()):
            typer.echo(f"Paper: {paper.citation()}, Table I, at the same data set, number of clients and method.")
