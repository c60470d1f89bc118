"""The command verify: check a certificate, its files and earlier certificates."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fupareto.cli.common import FailOn, Json, Quiet, Root, TrustCode, fail, progress, trusting
from fupareto.errors import UserError

if TYPE_CHECKING:
    from fupareto.evidence import Finding


def verify(
    file: Annotated[Path, typer.Argument(help="certificate.json, or the run directory that contains it.")],
    run: Annotated[Path | None, typer.Option(help="Run directory, if the certificate is not in it.")] = None,
    previous: Annotated[
        list[Path] | None,
        typer.Option(help="Certificate of an earlier request, if it is in another place (repeatable)."),
    ] = None,
    audit: Annotated[bool, typer.Option("--audit", help="Measure the models again and compare the numbers.")] = False,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Allowed difference of fractions when measured again.")
    ] = 0.005,
    trust_code: TrustCode = False,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
    fail_on: FailOn = None,
) -> None:
    """Check a certificate, its files and the earlier certificates; report every change; write nothing."""
    from fupareto import evidence
    from fupareto.tally import tally_of

    trusting(trust_code)
    file = _certificate(file)
    held = evidence.load(file)
    again = _measured(held, run or file.parent, root, quiet) if audit or root is not None else None
    found = evidence.verify(file, run, previous or (), again, tolerance)
    _show(held, found, as_json)
    if any(finding.level == evidence.FAILED for finding in found):
        raise typer.Exit(1)
    fail(tally_of(held["summary"], held["audit"]), fail_on)


def _certificate(path: Path) -> Path:
    """Return the path of the certificate: the file itself, or the one in a run directory."""
    if not path.is_dir():
        return path
    if not (path / "certificate.json").is_file():
        raise UserError(f"{path} has no certificate.json; write it first: fupareto certify {path}")
    return path / "certificate.json"


def _show(held: dict[str, Any], found: "Sequence[Finding]", as_json: bool) -> None:
    from fupareto import evidence
    from fupareto.tally import tally_of

    levels = [finding.level for finding in found]
    counts = {level: levels.count(level) for level in (evidence.OK, evidence.FAILED, evidence.NOT_CHECKED)}
    if as_json:
        checks = tally_of(held["summary"], held["audit"])
        result = {"verdict": held["verdict"], "checks": checks, "findings": [asdict(finding) for finding in found]}
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(evidence.describe(held) + "\n")
    for finding in found:
        typer.echo(f"{finding.level:12} {finding.text}")
    typer.echo(f"\nThe certificate: {', '.join(f'{count} {level}' for level, count in counts.items())}.")


def _measured(held: dict[str, Any], run: Path, root: Path | None, quiet: bool) -> Any:
    """Audit a certified run again with the same thresholds, without writing anything."""
    from fupareto import experiment
    from fupareto.audit.assemble import FORMAT
    from fupareto.audit.checks import Thresholds
    from fupareto.run.directory import Run

    audited = held["audit"] or {}
    if audited.get("format") != FORMAT:  # its numbers are others, and only the summary is compared
        return experiment.examine(Run.open(run), root, dormancy=0, progress=progress(quiet))
    limits = Thresholds.of(audited["thresholds"]) if "thresholds" in audited else None
    rounds = (audited.get("dormancy") or {}).get("rounds", 0)
    return experiment.examine(Run.open(run), root, thresholds=limits, dormancy=rounds, progress=progress(quiet))
