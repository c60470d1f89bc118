"""The command verify: check a certificate, its files and its chain."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fupareto.cli.common import Json, Quiet, Root, progress


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
    from fupareto import evidence

    held = evidence.load(file)
    again = _measured(held, run or file.parent, root, quiet) if audit or root is not None else None
    found = evidence.verify(file, run, previous or (), again, tolerance)
    failed = sum(finding.level == evidence.FAILED for finding in found)
    unchecked = sum(finding.level == evidence.NOT_CHECKED for finding in found)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        typer.echo(evidence.describe(held) + "\n")
        for finding in found:
            typer.echo(f"{finding.level:12} {finding.text}")
        typer.echo(f"\n{len(found) - failed - unchecked} right, {failed} wrong, {unchecked} not checked.")
    if failed:
        raise typer.Exit(1)


def _measured(held: dict[str, Any], run: Path, root: Path | None, quiet: bool) -> Any:
    """Audit a certified run again, as it was audited, without writing anything."""
    from fupareto import experiment
    from fupareto.audit.checks import Thresholds
    from fupareto.run.directory import Run

    audited = held["audit"] or {}
    limits = Thresholds.of(audited["thresholds"]) if "thresholds" in audited else None
    return experiment.examine(Run.open(run), root, thresholds=limits, progress=progress(quiet))
