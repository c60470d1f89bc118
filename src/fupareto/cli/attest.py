"""The command attest: a leaving client measures the kept model on its own data and signs the result."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fupareto.cli.common import Root
from fupareto.errors import UserError


def attest(
    run: Annotated[Path, typer.Argument(help="Run directory with a certificate.")],
    client: Annotated[str, typer.Option(help="The client that measures, one that is to be forgotten.")],
    key: Annotated[Path, typer.Option(help="Private key of the client (fupareto keys make client-ID).")],
    root: Root = None,
) -> None:
    """Measure the model to keep on a leaving client's own data, and add its signed receipt to the certificate."""
    from fupareto import experiment, verification
    from fupareto.evidence import keys, signing

    signer, name = keys.signer(key), keys.key_name(client)
    if key.suffix == ".key" and signer.name != name:  # keys of OpenSSH have other names, and no such suffix
        raise UserError(
            f"{key} is not the key of client {client!r}, and a receipt that it signs would fail verification; make "
            f"that key with: fupareto keys make {shlex.quote(name)}"
        )
    found = verification.receipts(experiment.stored(run, root), {client: signer}, [client])
    if reasons := [text for text in found.values() if text != verification.SIGNED]:
        raise UserError(f"client {client!r} gave no receipt: {reasons[0]}")
    typer.echo(f"Receipt of client {client}: {signing.bundle_of(run / 'certificate.json')}")
    if signer.name != name:
        typer.echo(f"Verifiers need the public half of {key} as {name}.pub.", err=True)
