"""The commands data list and data get."""

from typing import Annotated

import typer

from fupareto.cli.common import Quiet, Root


def list_(root: Root = None) -> None:
    """List the data sets and whether they are on disk."""
    from fupareto.data import SOURCES, status

    found = status(root)
    for name, about in SOURCES.items():
        typer.echo(f"{name:14} {about}\n{'':14} {found[name]}")


def get(
    name: Annotated[str, typer.Argument(help="fashion-mnist, cifar10, cifar100 or gtsrb.")],
    root: Root = None,
    quiet: Quiet = False,
) -> None:
    """Download a public data set, check it and unpack it; an interrupted download continues."""
    from fupareto.data import download as downloads
    from fupareto.progress import download

    with download(quiet) as show:
        typer.echo(downloads.get(name, root, show))
