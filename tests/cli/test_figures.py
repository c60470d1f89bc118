"""Figures as files, from the command line."""

import shutil
from pathlib import Path

from .conftest import Call


def test_the_report_and_its_figures(call: Call, small: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(small / "forgotten", run)
    ended = call("report", run, "--figures", tmp_path / "figures")
    assert ended.code == 0
    names = {p.name for p in (tmp_path / "figures").iterdir()}
    assert {"trajectory.svg", "trajectory.png", "convergence.svg", "membership.png", "search.svg"} <= names
    assert all(str(tmp_path / "figures" / name) in ended.out for name in names)
    (tmp_path / "file").write_text("")
    refused = call("report", run, "--figures", tmp_path / "file")
    assert (refused.code, "cannot write into" in refused.err) == (2, True)
