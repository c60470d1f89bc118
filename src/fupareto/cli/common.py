"""What do commands share? Their options, progress, and how a result is shown."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fupareto.run.directory import Run

Out = Annotated[Path, typer.Option(help="Run directory to write.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted or killed.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Root = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of the data sets.", show_default="$FUPARETO_DATA or ~/.cache/fupareto/data"),
]
Device = Annotated[str, typer.Option(help="Where clients compute: cpu, or cuda (untested).")]


def progress(quiet: bool) -> Any:
    """Return how rounds are shown while they run."""
    from fupareto.progress import rounds

    return partial(rounds, quiet=quiet)


def finish(run: "Run", as_json: bool) -> None:
    """Write the report and show the result."""
    path = report(run)
    if as_json:
        typer.echo(json.dumps(run.summary, indent=2))
        return
    from fupareto.report.terminal import show, stage_table

    show(stage_table(run.summary))
    if run.summary["verdict"]:
        typer.echo(run.summary["verdict"])
    if audit := run.audit:
        from fupareto.audit.checks import CLOSING

        for check in audit["verdict"]["checks"]:
            typer.echo(f"  {check['result']:8} {check['claim']}: {check['text']}")
        typer.echo(CLOSING)
    typer.echo(f"Summary: {run.path / 'summary.json'}\nReport:  {path}")


def report(run: "Run") -> Path:
    """Write the report of a run, with its audit where there is one."""
    from fupareto.report import render

    return run.save_report(render(run.summary, run.rounds(), run.config, run.audit))


def say(quiet: bool, text: str) -> None:
    """Tell the user, beside the result."""
    if not quiet:
        typer.echo(text, err=True)
