"""Command line interface; commands import heavy packages lazily, so that --help is fast."""

import os
import shlex
import sys
from typing import Annotated, NoReturn

import typer

from fupareto import files, trust
from fupareto.allocation import keep_freed_memory
from fupareto.cli import (
    attest,
    audit,
    bench,
    certify,
    compare,
    data,
    demo,
    flower,
    init,
    inventory,
    keys,
    methods,
    report,
    requests,
    train,
    unlearn,
    verify,
)
from fupareto.cli.common import Command
from fupareto.documents import check_text
from fupareto.errors import UserError

app = typer.Typer(
    epilog="Start with: fupareto demo. Exit codes: 0 success, 1 internal error, 2 a mistake in the command or its "
    "files, 3 a check failed that --fail-on names.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for module in (demo, init, train, unlearn, audit, certify, attest, verify, inventory, report, compare, bench, methods):
    name = module.__name__.rpartition(".")[2]
    app.command(name, cls=getattr(module, "Command", Command))(getattr(module, name))
data_app = typer.Typer(help="List data sets and download them.", no_args_is_help=True)
data_app.command("list", cls=Command)(data.list_)
data_app.command("get", cls=Command)(data.get)
app.add_typer(data_app, name="data")
app.add_typer(flower.app, name="flower")
keys_app = typer.Typer(help="Make keys that sign certificates, and show public ones.", no_args_is_help=True)
keys_app.command("make", cls=Command)(keys.make)
keys_app.command("show", cls=Command)(keys.show)
app.add_typer(keys_app, name="keys")
requests_app = typer.Typer(help="Keep the ledger of erasure requests, and answer them.", no_args_is_help=True)
for command in (requests.open_, requests.add, requests.list_, requests.show, requests.withdraw):
    requests_app.command(command.__name__.rstrip("_"), cls=Command)(command)
requests_app.command("answer", cls=audit.Command)(requests.answer)
requests_app.command("adopt", cls=Command)(requests.adopt)
requests_app.command("letter", cls=Command)(requests.letter)
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
    umask: Annotated[
        bool,
        typer.Option("--umask", help="Leave the permissions of new files to your umask, instead of 0600 and 0700."),
    ] = False,
) -> None:
    """Make a federated model forget clients, keep its utility for the retained clients, and measure the forgetting."""
    if umask:
        os.environ[files.UMASK] = "1"  # of this process and of those that it starts


def _check_arguments() -> None:
    """Refuse arguments that are not text: they could not be written into the files of a run."""
    try:
        for argument in sys.argv[1:]:
            check_text(argument, "the argument")
    except ValueError as error:
        raise UserError(str(error)) from error


def _refuse(message: str) -> NoReturn:
    typer.echo(f"Error: {message}", err=True)
    sys.exit(2)


def main() -> None:
    """Run the command line; exit codes are listed in cli/common.py."""
    trust.forget()
    keep_freed_memory()
    try:
        _check_arguments()
        app()
    except UserError as error:
        _refuse(str(error))
    except OSError as error:  # a name that is too long, a disk that fails: whatever a command did not expect of a file
        _refuse(f"cannot use {error.filename or 'a file'}: {error.strerror or error}")
    except MemoryError as error:
        _refuse(f"not enough memory: {error or 'the data or the model are too large'}")
    except (KeyboardInterrupt, SystemExit) as ended:  # typer turns Ctrl-C into exit code 130
        if isinstance(ended, SystemExit) and ended.code != 130:
            raise
        typer.echo("\nInterrupted. All finished rounds are saved.", err=True)
        if sys.argv[1:2] in (["demo"], ["train"], ["unlearn"], ["bench"]):
            again = [a for a in sys.argv[1:] if a != "--resume"]
            again += ["--resume"] if again[0] != "bench" else []
            typer.echo(f"Continue with: fupareto {shlex.join(again)}", err=True)
        sys.exit(130)
