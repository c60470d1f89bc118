"""A bench with cells that were measured elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from .commands import forked
from .conftest import Call
from .test_bench import BENCH

SEEDS = (0, 1)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The results of a bench that two machines share, a seed each."""
    place = tmp_path_factory.mktemp("parts")
    for seed in SEEDS:
        (place / "part.toml").write_text(BENCH.replace("seeds = [0, 1]", f"seeds = [{seed}]", 1))
        ended = forked("bench", "part.toml", "--quiet", "--out", f"part-{seed}", cwd=place)
        assert ended.code == 0, ended.err
    return [place / f"part-{seed}" / "results.json" for seed in SEEDS]


def cells(path: Path) -> list[Any]:
    return list(json.loads(path.read_text())["cells"])


def reuse(parts: list[Path]) -> list[object]:
    return [word for path in parts for word in ("--reuse", path)]


def test_together_they_are_what_one_machine_would_have(
    call: Call, parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bench.toml").write_text(BENCH)
    ended = call("bench", "bench.toml", "--quiet", "--out", "whole", *reuse(parts))
    assert ended.code == 0, ended.err
    assert cells(Path("whole/results.json")) == [cell for path in parts for cell in cells(path)]
    assert not Path("whole/cn1").exists()  # nothing was run
    assert "FUPareto" in Path("whole/table.md").read_text()


def test_what_is_missing_is_run(call: Call, parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bench.toml").write_text(BENCH)
    assert call("bench", "bench.toml", "--quiet", "--out", "whole", *reuse(parts[:1])).code == 0
    assert {path.name for path in Path("whole/cn1").iterdir()} == {"seed-1"}
    ours, theirs = (cells(path) for path in (Path("whole/results.json"), parts[1]))
    assert [cell["stages"] for cell in ours[2:]] == [cell["stages"] for cell in theirs]


@pytest.mark.parametrize(
    ("old", "new", "another"),
    [
        ("lr = 0.05", "lr = 0.5", "another lr"),
        ("samples = 300", "samples = 400", "another experiment"),
        ("seeds = [0, 1]", "seeds = [0, 1]\nmeasure_every = 3", "another measure_every"),
        ('method = "retrain"', 'method = "finetune"', "another method"),
        ("seeds = [0, 1]", "seeds = [0, 1]\naudit = { retrain = 1, dormancy = 2 }", "another audit"),
    ],
)
def test_a_cell_that_was_measured_otherwise_is_refused(
    call: Call, parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, another: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bench.toml").write_text(BENCH.replace(old, new, 1))
    ended = call("bench", "bench.toml", "--quiet", *reuse(parts))
    assert ended.code == 2
    assert f"{parts[0]}: the cell CN=1, seed 0" in ended.err.replace("\n", " ")
    assert another in ended.err
    assert not Path("runs").exists()


def test_a_file_that_is_no_bench_is_refused(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bench.toml").write_text(BENCH)
    Path("other.json").write_text("{}")
    for path, word in (("absent.json", "absent.json"), ("other.json", "not the results.json of a bench")):
        ended = call("bench", "bench.toml", "--reuse", path)
        assert ended.code == 2
        assert word in ended.err
