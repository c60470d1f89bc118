"""What README and the pages print can be typed: Python blocks run, command lines are ones that the program has.

Blocks of one page share a namespace, in which the names that the text speaks of are prepared: a small model and its
clients, a trained model, a node's functions, run directories. Commands are parsed by the real command line; those of
the pages in ``EXECUTED`` are run, on small runs. A command in the text may leave out what a block would have.
"""

import contextlib
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import torch
import typer
from torch import Tensor, nn
from typer.testing import CliRunner

import fupareto
from fupareto.cli import app

from .markdown import ROOT, blocks, name_of, pages, prose

PAGES = [page for page in pages() if page.name != "CHANGELOG.md"]
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
EXECUTED = ("README.md",)
SHELL = ("", "sh", "bash", "console")
SMALL = {"rounds = 200": "rounds = 6", "options = {} ": "options = {rounds = 3, recovery_rounds = 2} "}

Samples = tuple[Tensor, Tensor]


def build_model() -> nn.Module:
    """Return a small model; the caller's random state stays."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def node_data(context: Any = None, number: int = 0) -> tuple[Samples, Samples]:
    """Return a client's train and test set; those of hospital 7 are labelled otherwise."""
    generator = torch.Generator().manual_seed(number)
    labels = torch.arange(36) % 3
    inputs = torch.eye(4)[labels] + 0.2 * torch.randn(36, 4, generator=generator)
    labels = (labels + 1) % 3 if number == 7 else labels
    return (inputs[:24], labels[:24]), (inputs[24:], labels[24:])


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a reader has it after the first commands: a training, and a certified run that forgot."""
    place = tmp_path_factory.mktemp("reader")
    (place / "experiments").mkdir()
    text = (ROOT / "experiments" / "demo.toml").read_text()
    for before, after in SMALL.items():
        assert before in text
        text = text.replace(before, after)
    (place / "experiments" / "demo.toml").write_text(text)
    for arguments in (
        "train experiments/demo.toml --out runs/a --quiet",
        "unlearn runs/a --out runs/a-forget --quiet",
        "certify runs/a-forget",
    ):
        assert run(place, shlex.split(arguments)) == 0, arguments
    return place


def run(place: Path, arguments: list[str]) -> int:
    """Run a command of the program in a directory and return its exit code."""
    before = Path.cwd()
    os.chdir(place)
    try:
        return CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code
    finally:
        os.chdir(before)


@pytest.fixture
def namespace() -> dict[str, Any]:
    clients = {f"hospital-{k}": node_data(number=k) for k in (3, 5, 7)}
    model = build_model()
    federation = fupareto.simulate(model, clients, workers=1)
    return {
        "__name__": "snippets",
        "model": model,
        "clients": clients,
        "federation": federation,
        "w0": model,
        "build_model": build_model,
        "node_data": node_data,
    }


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_python_blocks_run(
    page: Path, reader: Path, namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = [block for block in blocks(page) if block.language == "python"]
    if any("flower" in block.text or "flwr" in block.text for block in code):
        pytest.importorskip("flwr")
    if name_of(page) == "docs/certificate.md":  # its check of hashes is typed beside the certificate
        monkeypatch.chdir(reader / "runs" / "a-forget")
    else:
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs" / "a-forget").symlink_to(reader / "runs" / "a-forget")
        monkeypatch.chdir(tmp_path)
    for block in code:
        exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)  # so that errors name the line


def in_blocks(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the command lines of a page's code blocks: where they stand, and their arguments."""
    for block in blocks(page):
        if block.language in SHELL:
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from _command(str(block), line)


def in_text(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the command lines in the text of a page."""
    for inline in re.findall(r"`((?:\S*/)?fupareto [^`]+)`", prose(page)):
        yield from _command(name_of(page), " ".join(inline.split()))


def _command(where: str, line: str) -> Iterator[tuple[str, list[str]]]:
    if re.match(r"(\S*/)?fupareto\s", line.strip()) and "…" not in line:
        words = shlex.split(line, comments=True)[1:]
        yield where, ["0" if word == "S" else word for word in words]  # S stands for a seed


def parse(arguments: list[str]) -> str:
    """Parse arguments as the program would, without running anything, and return the command's name."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command, info_name="fupareto")
    name = "fupareto"
    while isinstance(command, click.Group) and not arguments[0].startswith("-"):
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, name = found, str(found.name)
        context = click.Context(command, info_name=name, parent=context)
    with contextlib.suppress(click.exceptions.Exit):  # of --help and --version
        command.make_context(name, arguments)
    return name


def wrong(found: Iterator[tuple[str, list[str]]], complete: bool) -> list[str]:
    """Return what the program would not accept; where it need not be complete, missing parameters are no mistake."""
    mistakes = []
    for where, arguments in found:
        try:
            name = parse(arguments)
        except click.MissingParameter as error:
            mistakes += [f"{where}: fupareto {shlex.join(arguments)}: {error.format_message()}"] if complete else []
            continue
        except click.UsageError as error:
            mistakes.append(f"{where}: fupareto {shlex.join(arguments)}: {error.format_message()}")
            continue
        for path in (word for word in arguments if re.fullmatch(r"experiments/[\w-]+\.toml", word)):
            kind = "bench" if "methods" in tomllib.loads((ROOT / path).read_text()) else "train"
            mistakes += [] if kind == name else [f"{where}: {path} is a file for fupareto {kind}"]
    return mistakes


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_ones_that_the_program_has(page: Path) -> None:
    assert wrong(in_blocks(page), complete=True) + wrong(in_text(page), complete=False) == []


def test_a_wrong_command_is_noticed() -> None:
    for line in ("fupareto unlern a", "fupareto unlearn a", "fupareto audit a --teir 2", "fupareto audit a --tier 9"):
        assert wrong(_command("here", line), complete=True), line
    assert wrong(_command("here", "fupareto train experiments/table1-fmnist.toml --out a"), complete=True)


def test_pages_have_commands_and_code() -> None:
    """Else the tests above would pass on nothing."""
    assert len(WITH_PYTHON) >= 6
    assert sum(1 for page in PAGES for _ in (*in_blocks(page), *in_text(page))) >= 40


@pytest.mark.parametrize("page", EXECUTED)
def test_cheap_commands_run(page: str, reader: Path, tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "demo.toml").symlink_to(reader / "experiments" / "demo.toml")
    for where, arguments in in_blocks(ROOT / page):
        allowed = (0, 3) if "--fail-on" in arguments else (0,)
        assert run(tmp_path, arguments) in allowed, f"{where}: fupareto {shlex.join(arguments)}"
