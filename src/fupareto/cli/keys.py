"""The commands keys make and keys show: Ed25519 keys that sign certificates."""

import os
from pathlib import Path
from typing import Annotated

import typer


def make(
    name: Annotated[str, typer.Argument(help="Name of the key: operator, or client-ID for the key of a client.")],
    out: Annotated[Path, typer.Option(help="Directory to write NAME.key and NAME.pub to.")] = Path("keys"),
    protect: Annotated[
        bool, typer.Option("--protect", help="Protect the private key by a passphrase (asked, or FUPARETO_PASSPHRASE).")
    ] = False,
) -> None:
    """Make a pair of keys: NAME.key signs and is never printed; NAME.pub checks and is given to others."""
    from fupareto.evidence import keys

    secret = os.environ.get(keys.PASSPHRASE, "") if protect else ""
    if protect and not secret:
        secret = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
    public, identity = keys.make(name, out, secret)
    typer.echo(f"Private key: {public.with_suffix('.key')} (keep it; who has it can sign in your name)")
    typer.echo(f"Public key:  {public} (give it to those who verify)\nId: {identity}")


def show(path: Annotated[Path, typer.Argument(help="Public key (.pub), or a directory of them.")]) -> None:
    """Show the names and ids of public keys, to compare them over the telephone."""
    from fupareto.evidence import keys

    for name, key in keys.trusted(path).keys.items():
        typer.echo(f"{name}  {keys.key_id(key)}")
