"""A demo in the place of an earlier one: what a demo has made goes, and anything else stays, with all of the rest."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fupareto.cli.earlier import discard

from .commands import files
from .test_mistakes import Mistake, write


def demo_of(place: Path, small: Path) -> Path:
    """Return a directory as a demo leaves it, with the runs of a smaller experiment."""
    shutil.copytree(small / "forgotten", place)
    for name in ("training", "retrained"):
        shutil.copytree(small / "trained", place / name)
    write("{}", str(place / "demo.json"))
    return place


def test_demo_does_not_delete_another_run(mistake: Mistake, small: Path) -> None:
    """The training may be that of the demo; what counts is who created the directory."""
    shutil.copytree(small / "trained", "mine/training")
    mistake("demo", "--out", "mine", says=("mine already exists", "another --out"))
    shutil.copytree(small / "forgotten", "other")
    shutil.copytree(small / "trained", "other/training")
    mistake("demo", "--out", "other", says=("other already exists", "another --out"))


def linked(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def noted(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")


FOREIGN: dict[str, Callable[[Path], object]] = {
    "notes.txt": noted,
    "certificate.json": noted,
    "training/notes.txt": noted,
    "checkpoint/notes.txt": noted,
    "training/certificate.json": noted,
    "another": lambda path: shutil.copytree(path.parent / "training", path),
    "training/retrained": lambda path: shutil.copytree(path.parents[1] / "retrained", path),
    "retrained-2": lambda path: linked(path, "../precious"),
    "report.html": lambda path: linked(path, "/etc/hostname"),
    "audit.json": lambda path: linked(path, "../precious/config.toml"),
    "shadows": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_demo_removes_only_what_a_demo_has_made(mistake: Mistake, small: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").mkdir()
    write("precious", "precious/config.toml")
    FOREIGN[name](demo_of(tmp_path / "demo", small) / name)
    mistake("demo", "--out", "demo", says=(f"demo/{name} was not made by a demo", "another --out"))


def test_demo_does_not_follow_a_link_to_its_directory(mistake: Mistake, small: Path, tmp_path: Path) -> None:
    demo_of(tmp_path / "demo", small)
    (tmp_path / "link").symlink_to("demo")
    mistake("demo", "--out", "link", says=("link already exists", "another --out"))


def test_an_earlier_demo_is_removed_and_nothing_else(small: Path, tmp_path: Path) -> None:
    demo = demo_of(tmp_path / "demo", small)
    write("mine", str(tmp_path / "beside.txt"))
    discard(demo)
    assert files(tmp_path) == {"beside.txt": b"mine"}
