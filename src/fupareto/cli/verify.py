"""The command verify: check a certificate, its files, its signatures and its place in the ledger."""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fupareto.cli.common import FailOn, Json, Quiet, Root, TrustCode, fail, progress, trusting
from fupareto.errors import UserError

if TYPE_CHECKING:
    from fupareto.evidence import Against, Finding


def verify(
    file: Annotated[Path, typer.Argument(help="certificate.json, or the run directory that contains it.")],
    run: Annotated[Path | None, typer.Option(help="Run directory, if the certificate is not in it.")] = None,
    previous: Annotated[
        list[Path] | None,
        typer.Option(help="Certificate of an earlier request, if it is in another place (repeatable)."),
    ] = None,
    trusted: Annotated[
        Path | None, typer.Option(help="Public keys that are trusted: a .pub file, or a directory of them.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger of requests that the certificate belongs to.")] = None,
    head: Annotated[str | None, typer.Option(help="SHA-256 of the newest ledger entry that you were given.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model that is deployed (.safetensors): say which request it answered.")
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(help="Threshold that you accept, e.g. --threshold asr=0.05 (repeatable).")
    ] = None,
    authority: Annotated[
        Path | None, typer.Option(help="Root certificates (PEM) of timestamp authorities that are trusted.")
    ] = None,
    audit: Annotated[bool, typer.Option("--audit", help="Measure the models again and compare the numbers.")] = False,
    replay: Annotated[
        str | None,
        typer.Option(
            help="Rounds to compute again: e.g. 17,93, all whose states are kept (all), or every one (every)."
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Allowed difference of fractions when measured again.")
    ] = 0.005,
    strict: Annotated[bool, typer.Option("--strict", help="Fail also if anything was not checked.")] = False,
    trust_code: TrustCode = False,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
    fail_on: FailOn = None,
) -> None:
    """Check a certificate, its files, signatures and place; report every change; write nothing."""
    from fupareto import evidence
    from fupareto.tally import tally_of

    trusting(trust_code)
    file = _certificate(file)
    held = evidence.load(file)
    where = run or file.parent
    against = _against(trusted, ledger, head, threshold or [])
    again = _measured(held, where, root, quiet) if audit or root is not None else None
    if replay is not None:
        from fupareto import experiment

        against = dataclasses.replace(against, replayed=experiment.replay(where, replay, root))
    against = dataclasses.replace(against, authorities=authority)
    found = evidence.verify(file, run, previous or (), again, tolerance, against)
    if model is not None:
        found.append(evidence.deployed(model, held, ledger))
    _show(held, found, as_json)
    bad = (evidence.FAILED, evidence.NOT_CHECKED) if strict else (evidence.FAILED,)
    if any(finding.level in bad for finding in found):
        raise typer.Exit(1)
    fail(tally_of(held["summary"], held["audit"]), fail_on)


def _against(trusted: Path | None, ledger: Path | None, head: str | None, limits: list[str]) -> "Against":
    """Return what the verifier has: keys, the ledger and accepted thresholds."""
    from fupareto import evidence, parse
    from fupareto.audit.thresholds import Thresholds

    chosen = parse.options(limits, "--threshold")
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head := head.strip().lower()):
        raise UserError(f"--head takes the SHA-256 of an entry, 64 hexadecimal digits, not {head!r}")
    return evidence.Against(
        trusted=evidence.trusted(trusted) if trusted else None,
        ledger=ledger,
        head=head,
        limits=dataclasses.asdict(Thresholds.of(chosen)),
        chosen=tuple(chosen),
    )


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
        findings = [dataclasses.asdict(finding) for finding in found]
        typer.echo(json.dumps({"verdict": held["verdict"], "checks": checks, "findings": findings}, indent=2))
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

    audited, host = held["audit"] or {}, experiment.Host(root, progress=progress(quiet))
    if audited.get("format") != FORMAT:  # its numbers are others, and only the summary is compared
        return experiment.examine(Run.open(run), dormancy=0, host=host)
    limits = Thresholds.of(audited["thresholds"]) if "thresholds" in audited else None
    rounds = (audited.get("dormancy") or {}).get("rounds", 0)
    return experiment.examine(Run.open(run), thresholds=limits, dormancy=rounds, host=host)
