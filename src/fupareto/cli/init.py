"""The command init: write an experiment file, or a Flower app, to start from."""

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from fupareto.errors import UserError
from fupareto.files import create


def init(
    file: Annotated[Path, typer.Argument(help="Experiment file to write.")] = Path("experiment.toml"),
    flower: Annotated[
        Path | None, typer.Option(help="Write a Flower app into this directory instead.", show_default=False)
    ] = None,
) -> None:
    """Write an experiment file with every setting, its default and what it means; or a Flower app."""
    if flower is not None:
        _app(flower)
        typer.echo(f"{flower}\nRead {flower / 'README.md'}, then replace the functions in digits/client.py.", err=True)
        return
    text = files("fupareto.experiment").joinpath("demo.toml").read_text(encoding="utf-8")
    try:
        create(file, text.encode())
    except FileExistsError as error:
        raise UserError(f"{file} already exists; choose another name") from error
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
    typer.echo(f"{file}\nEdit it, then: fupareto train {file} --out runs/mine", err=True)


def _app(place: Path) -> None:
    """Copy the Flower app of this package into a directory that does not exist, or is empty."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(f"{place} already exists; choose another directory")
    try:
        with as_file(files("fupareto.flower").joinpath("template")) as template:
            ignored = shutil.ignore_patterns("__pycache__", "keys", "runs")
            shutil.copytree(template, place, dirs_exist_ok=True, ignore=ignored)
    except OSError as error:
        raise UserError(f"cannot write {place}: {error.strerror or error}") from error
