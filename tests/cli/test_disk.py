"""A disk that is full or read-only: exit code 2, what is on disk is whole, and the run goes on once it is mended."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import files
from .conftest import Call
from .test_resume import same


def mount(path: Path, options: str) -> bool:
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte, for as long as the test takes."""
    path = tmp_path / "disk"
    path.mkdir()
    if not mount(path, "size=1m"):
        pytest.skip("NOT TESTED: a full disk (mounting a tmpfs is not permitted here)")
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize("size", ["4k", "8k", "16k", "28k", "40k", "64k", "92k", "120k"])
def test_full_disk(call: Call, small: Path, disk: Path, size: str) -> None:
    assert mount(disk, f"remount,size={size}")
    start = ("train", small / "small.toml", "--out", disk / "run")
    ended = call(*start)
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert "No space left on device" in ended.err
    assert str(disk / "run") in ended.err
    assert "free some space and continue with --resume" in ended.err
    assert not list(disk.rglob(".*.part"))
    again = call(*start, "--resume")  # still full: still said, nothing worse
    assert again.code == 2
    assert "No space left" in again.err
    assert mount(disk, "remount,size=2m")
    assert call(*start, "--resume").code == 0
    same(disk / "run", small / "trained")


def test_read_only_disk(call: Call, small: Path, disk: Path) -> None:
    assert mount(disk, "remount,ro")
    ended = call("train", small / "small.toml", "--out", disk / "run")
    assert ended.code == 2
    assert f"cannot create the directory {disk / 'run'}: Read-only file system" in ended.err
    assert mount(disk, "remount,rw")
    assert call("train", small / "small.toml", "--out", disk / "run", "-q").code == 0
    before = files(disk)
    assert mount(disk, "remount,ro")
    for command in ("report", "audit"):
        ended = call(command, disk / "run")
        assert ended.code == 2
        assert "Read-only file system" in ended.err
        assert "Traceback" not in ended.err
    assert files(disk) == before


def test_an_audit_with_shadow_models_on_a_read_only_disk(call: Call, small: Path, disk: Path) -> None:
    for name in ("trained", "forgotten"):
        shutil.copytree(small / name, disk / name)
    before = files(disk)
    assert mount(disk, "remount,ro")
    ended = call("audit", disk / "forgotten", "--tier", "2", "-q")
    assert ended.code == 2
    assert "Read-only file system" in ended.err
    assert "Traceback" not in ended.err
    assert files(disk) == before


def test_a_page_or_a_file_on_a_full_disk_is_not_left_empty(call: Call, small: Path, disk: Path) -> None:
    assert mount(disk, "remount,size=4k")
    for command in (("compare", small / "trained", "--out", disk / "page.html"), ("init", disk / "mine.toml")):
        (disk / "fill").write_bytes(bytes(4096))
        ended = call(*command)
        assert ended.code == 2, ended
        assert "No space left on device" in ended.err
        assert "Traceback" not in ended.err
        assert set(files(disk)) == {"fill"}
