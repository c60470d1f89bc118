"""Options, progress and output that the commands share.

Exit codes: 0 success; 1 internal error, or a certificate that fails verification; 2 mistake of the user; 3 a check
has a result that ``--fail-on`` names; 130 interrupted.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperCommand

from fupareto import parse
from fupareto.errors import UserError

if TYPE_CHECKING:
    from fupareto.experiment import Agree
    from fupareto.federation import Request
    from fupareto.run.directory import Run

Out = Annotated[Path, typer.Option(help="Run directory to write.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Root = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of the data sets.", show_default="$FUPARETO_DATA or ~/.cache/fupareto/data"),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER", help="Log the rounds to tensorboard, mlflow or wandb, too (repeatable).", show_default="none"
    ),
]
Clients = Annotated[list[str] | None, typer.Option(help="Clients to forget, e.g. 3,7 (repeatable).")]
Samples = Annotated[
    Path | None, typer.Option(help='Samples to forget: JSON file with row numbers by client, e.g. {"3": [0, 17]}.')
]
Classes = Annotated[list[str] | None, typer.Option(help="Classes to forget, e.g. 4 or 4,7 (repeatable).")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Start a run that takes longer than a day without asking.")]
Key = Annotated[Path | None, typer.Option(envvar="FUPARETO_KEY", help="Private key that signs (fupareto keys make).")]
Device = Annotated[str, typer.Option(help="Device on which the clients compute: cpu, or cuda (untested).")]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="Import the code of yours that the run directory names: a model, a method, a task."
    ),
]


CHECK_FAILED = 3  # exit code


class Command(TyperCommand):
    """A command that refuses an option with one value that is given twice, instead of dropping the first value.

    What is dropped could be a part of an erasure request.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raise UserError for an option that is given too often."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for param, count in Counter(given).items():
            if isinstance(param, click.Option) and count > 1 and not (param.multiple or param.is_flag or param.count):
                often = "twice" if count == 2 else f"{count} times"
                raise UserError(f"{param.opts[0]} was given {often}; it takes one value, so give it once")
        return super().parse_args(ctx, args)


def requested(clients: Sequence[str] | None, samples: Path | None, classes: Sequence[str] | None) -> "Request | None":
    """Return what is to be forgotten, as the options name it; None where they name nothing.

    Args:
        clients: Values of --clients, each a comma-separated list.
        samples: Value of --samples.
        classes: Values of --classes, each a comma-separated list.
    """
    return parse.request(_joined(clients, "--clients"), samples, _joined(classes, "--classes"))


def _joined(values: Sequence[str] | None, option: str) -> str | None:
    """Return several lists as one; None without any."""
    if not values:
        return None
    if len(values) > 1 and not all(map(parse.listed, values)):
        raise UserError(f"{option} was given {len(values)} times, once without a value; leave that one out")
    return ",".join(values)


class Results(StrEnum):
    """The results of a check that ``--fail-on`` can name."""

    refuted = "refuted"
    open = "open"


FailOn = Annotated[
    Results | None,
    typer.Option(
        help=f"Exit with code {CHECK_FAILED} if a check is refuted; with open, also if one is open or none was made.",
        show_default="never",
    ),
]


def fail(tally: Mapping[str, int] | None, on: Results | None) -> None:
    """Exit with code 3 if a check has a result that ``--fail-on`` names."""
    if on is None:
        return
    refuted = (tally or {}).get("refuted", 0)
    undecided = tally is None or tally["open"] > 0
    if refuted or (on is Results.open and undecided):
        raise typer.Exit(CHECK_FAILED)


def trusting(trust_code: bool) -> None:
    """Trust the code that run directories name, if the user asked for that."""
    from fupareto import trust

    if trust_code:
        trust.everything()


def progress(quiet: bool) -> Any:
    """Return the progress display of a run."""
    from fupareto.progress import rounds

    return partial(rounds, quiet=quiet)


def agree(yes: bool) -> "Agree":
    """Return the function that asks whether a long run should start; without a terminal nobody can be asked."""

    def ask(sentence: str) -> bool:
        asked = not yes and sys.stdin.isatty() and sys.stderr.isatty()
        return yes or (asked and typer.confirm(f"{sentence[0].upper()}{sentence[1:]}. Start it?", err=True))

    return ask


def finish(run: "Run", as_json: bool, fail_on: Results | None = None) -> None:
    """Write the report, show the result, and exit with code 3 if ``fail_on`` says so."""
    from fupareto.tally import tally_of

    path = report(run)
    if as_json:
        typer.echo(json.dumps(run.summary, indent=2))
    else:
        _show(run, path)
    fail(tally_of(run.summary, run.audit), fail_on)


def _show(run: "Run", path: Path) -> None:
    from fupareto.report.terminal import show, stage_table, task_table

    tables = stage_table(run.summary, run.audit), task_table(run.summary, run.audit)
    show(*(table for table in tables if table is not None))
    if run.summary["verdict"]:
        typer.echo(run.summary["verdict"])
    if audit := run.audit:
        from fupareto.audit.checks import CLOSING

        for check in audit["verdict"]["checks"]:
            typer.echo(f"  {check['result']:8} {check['claim']}: {check['text']}")
        typer.echo(CLOSING)
    typer.echo(f"Summary: {run.path / 'summary.json'}\nReport:  {path}")


def report(run: "Run") -> Path:
    """Write the report of a run, with its audit if it has one."""
    from fupareto.report import render

    return run.save_report(render(run.summary, run.rounds(), run.config, run.audit))


def say(quiet: bool, text: str) -> None:
    """Print a message on standard error, unless quiet."""
    if not quiet:
        typer.echo(text, err=True)
