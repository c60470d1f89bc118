"""The command init: write an experiment file to start from."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from fupareto.errors import UserError
from fupareto.files import create


def init(
    file: Annotated[Path, typer.Argument(help="Experiment file to write.")] = Path("experiment.toml"),
) -> None:
    """Write an experiment file with every setting, its default and what it means."""
    text = files("fupareto.experiment").joinpath("demo.toml").read_text(encoding="utf-8")
    try:
        create(file, text.encode())
    except FileExistsError as error:
        raise UserError(f"{file} already exists; choose another name") from error
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
    typer.echo(f"{file}\nEdit it, then: fupareto train {file} --out runs/mine", err=True)
