"""Command line interface; commands import heavy packages lazily, so that --help is fast."""

import shlex
import sys
from typing import Annotated

import typer

from fupareto.cli import (
    attest,
    audit,
    bench,
    certify,
    compare,
    data,
    demo,
    init,
    keys,
    methods,
    report,
    requests,
    train,
    unlearn,
    verify,
)
from fupareto.errors import UserError

app = typer.Typer(
    epilog="Start with: fupareto demo. Exit codes: 0 success, 1 internal error, 2 a mistake in the command or its "
    "files, 3 a check failed that --fail-on names.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for module in (demo, init, train, unlearn, audit, certify, attest, verify, report, compare, bench, methods):
    name = module.__name__.rpartition(".")[2]
    app.command(name, cls=getattr(module, "Command", None))(getattr(module, name))
data_app = typer.Typer(help="List data sets and download them.", no_args_is_help=True)
data_app.command("list")(data.list_)
data_app.command("get")(data.get)
app.add_typer(data_app, name="data")
keys_app = typer.Typer(help="Make keys that sign certificates, and show public ones.", no_args_is_help=True)
keys_app.command("make")(keys.make)
keys_app.command("show")(keys.show)
app.add_typer(keys_app, name="keys")
requests_app = typer.Typer(help="Keep the ledger of erasure requests, and answer them.", no_args_is_help=True)
for command in (requests.open_, requests.add, requests.list_, requests.show, requests.answer, requests.adopt):
    requests_app.command(command.__name__.rstrip("_"))(command)
requests_app.command("letter")(requests.letter)
app.add_typer(requests_app, name="requests")


def _version(wanted: bool) -> None:
    if wanted:
        import fupareto

        typer.echo(f"fupareto {fupareto.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Make a federated model forget clients, keep its utility for the retained clients, and measure the forgetting."""


def main() -> None:
    """Run the command line; exit codes are listed in cli/common.py."""
    try:
        app()
    except UserError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as ended:  # typer turns Ctrl-C into exit code 130
        if isinstance(ended, SystemExit) and ended.code != 130:
            raise
        typer.echo("\nInterrupted. All finished rounds are saved.", err=True)
        if sys.argv[1:2] in (["demo"], ["train"], ["unlearn"], ["bench"]):
            again = [a for a in sys.argv[1:] if a != "--resume"]
            again += ["--resume"] if again[0] != "bench" else []
            typer.echo(f"Continue with: fupareto {shlex.join(again)}", err=True)
        sys.exit(130)
