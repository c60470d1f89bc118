"""The Flower app that init writes."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .commands import fupareto


def test_init_writes_a_flower_app_that_is_the_example(tmp_path: Path) -> None:
    place = tmp_path / "my app"
    done = fupareto("init", "--flower", place)
    assert done.code == 0, done.err
    example = Path(__file__).parents[2] / "examples" / "flower-app"
    files = {p.relative_to(place) for p in place.rglob("*") if p.is_file()}
    assert {Path("pyproject.toml"), Path("certificates.sh"), Path("README.md"), Path("digits/client.py")} < files
    assert all((place / f).read_bytes() == (example / f).read_bytes() for f in files)
    assert (place / "certificates.sh").stat().st_mode & 0o100
    again = fupareto("init", "--flower", place)
    assert again.code == 2
    assert "already exists; choose another directory" in again.err


@pytest.mark.parametrize("unit", ["flower-superlink.service", "flower-supernode@.service"])
def test_the_units_of_the_app_use_options_that_exist(unit: str) -> None:
    place = Path(__file__).parents[2] / "examples" / "flower-app" / "systemd" / unit
    [line] = [line for line in place.read_text().splitlines() if line.startswith("ExecStart=")]
    command, *arguments = shlex.split(line.partition("=")[2].rpartition("-- ")[2])
    found = subprocess.run(
        [Path(sys.executable).parent / Path(command).name, "--help"], capture_output=True, text=True, check=True
    ).stdout
    options = [a for a in arguments if a.startswith("--")]
    assert options
    assert all(option in found for option in options)
