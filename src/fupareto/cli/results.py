"""Commands that look at runs: audit, certify, verify, report, compare."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fupareto import parse
from fupareto.cli.common import Json, Quiet, Root, finish, progress, say
from fupareto.cli.common import report as write_report
from fupareto.errors import UserError


def audit(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    tier: Annotated[
        int,
        typer.Option(
            min=1, max=3, help="1: attacks on the models alone; 2: RMIA, with a few reference models; 3: LiRA."
        ),
    ] = 1,
    shadows: Annotated[
        int | None, typer.Option(help="Shadow models to train.", show_default="4 at tier 2, 64 at tier 3")
    ] = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Retrain without the forgotten data, and compare with that.")
    ] = False,
    reference: Annotated[
        Path | None, typer.Option(help="Run directory of the method retrain on the same request, to compare with.")
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(help="Where a number is good enough, e.g. --threshold asr=0.02 (repeatable).")
    ] = None,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure and attack a run's models anew, and write summary.json, audit.json and the report."""
    from fupareto import experiment
    from fupareto.audit.verdict import Thresholds
    from fupareto.runs import Run

    place = Run.open(run)
    experiment.audit(
        place,
        root,
        tier=tier,
        shadows=shadows,
        retrain=retrain,
        reference=reference,
        thresholds=Thresholds.of(parse.options(threshold or [], "--threshold")),
        progress=progress(quiet),
        say=partial(say, quiet),
    )
    finish(place, as_json)


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
    """Write a run's certificate: its request, models, numbers and files, fixed by SHA-256."""
    from fupareto import certificate

    path = certificate.certify(run, out, previous, say=partial(say, False))
    if as_json:
        typer.echo(path.read_text())
        return
    typer.echo(certificate.describe(certificate.load(path)))
    typer.echo(f"Certificate: {path}\nIt does not say who wrote it: sign it (docs/certificate.md).")


def verify(
    file: Annotated[Path, typer.Argument(help="certificate.json")],
    run: Annotated[Path | None, typer.Option(help="Run directory, if the certificate lies elsewhere.")] = None,
    previous: Annotated[
        list[Path] | None, typer.Option(help="Certificates of earlier requests, if they lie elsewhere (repeatable).")
    ] = None,
    audit: Annotated[bool, typer.Option("--audit", help="Measure again on the data, and compare the numbers.")] = False,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How far fractions may differ when measured again.")
    ] = 0.005,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check a certificate, its files and the chain before it; names whatever was changed, and writes nothing."""
    from fupareto import certificate

    held = certificate.load(file)
    again = _measured(held, run or file.parent, root, quiet) if audit or root is not None else None
    found = certificate.verify(file, run, previous or (), again, tolerance)
    failed = sum(finding.level == certificate.FAILED for finding in found)
    unchecked = sum(finding.level == certificate.NOT_CHECKED for finding in found)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        typer.echo(certificate.describe(held) + "\n")
        for finding in found:
            typer.echo(f"{finding.level:12} {finding.text}")
        typer.echo(f"\n{len(found) - failed - unchecked} right, {failed} wrong, {unchecked} not checked.")
    if failed:
        raise typer.Exit(1)


def _measured(held: dict[str, Any], run: Path, root: Path | None, quiet: bool) -> Any:
    """Audit a certified run again, as it was audited, without writing anything."""
    from fupareto import experiment
    from fupareto.audit.verdict import Thresholds
    from fupareto.runs import Run

    audited = held["audit"] or {}
    limits = Thresholds.of(audited["thresholds"]) if "thresholds" in audited else None
    return experiment.examine(Run.open(run), root, thresholds=limits, progress=progress(quiet))


def report(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure as SVG and PNG into this directory.")
    ] = None,
) -> None:
    """Write report.html, one page that opens offline."""
    from fupareto.runs import Run

    place = Run.open(run)
    typer.echo(write_report(place))
    if figures is not None:
        from fupareto.report import write_figures

        try:
            written = write_figures(figures, place.summary, place.rounds(), place.config, place.audit)
        except OSError as error:
            raise UserError(f"cannot write into {figures}: {error.strerror}") from error
        typer.echo("\n".join(map(str, written)))


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[Path | None, typer.Option(help="Also write the comparison as an HTML page.")] = None,
    as_json: Json = False,
) -> None:
    """Show runs side by side."""
    from fupareto.runs import Run

    places = [Run.open(path) for path in runs]
    summaries = {str(place.path): place.summary for place in places}
    if out is not None:
        from fupareto.report import render_comparison

        html = render_comparison(
            [(str(p.path), p.summary, p.rounds()) for p in places], {str(p.path): p.audit for p in places}
        )
        try:
            out.write_text(html)
        except OSError as error:
            raise UserError(f"cannot write {out}: {error.strerror}") from error
        typer.echo(f"Comparison: {out}", err=True)
    if as_json:
        typer.echo(json.dumps(summaries, indent=2))
    else:
        from fupareto import paper
        from fupareto.report.table import comparison_table, show

        beside = {str(p.path): paper.beside(summaries[str(p.path)], p.config.get("method", {})) for p in places}
        show(comparison_table(summaries, beside))
        if any(beside.values()):
            typer.echo(f"Paper: {paper.citation()}, Table I, at the same data set, number of clients and method.")
