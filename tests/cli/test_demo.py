"""The demo, once, as a user sees it: the table, the report, the run directory, and numbers that say it worked."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from .commands import Ended, Process, files, forked, fupareto

KEPT = ("initial", "unlearned")  # the demo has no rounds of recovery
MEASURES = {"asr", "asr_max", "r_acc", "r_acc_std", "r_acc_min", "forget_acc", "mia_auc", "distance"}

RETRAINED = (
    *("config.toml", "request.json", "rounds.jsonl", "summary.json", "initial.safetensors", "unlearned.safetensors"),
    "manifest.json",
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    place = tmp_path_factory.mktemp("demo")
    return place / "runs/demo", fupareto("demo", cwd=place, env={"COLUMNS": "80"})


@pytest.fixture(scope="module")
def summary(demo: tuple[Path, Ended]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((demo[0] / "summary.json").read_text())
    return found


def test_says_what_came_out(demo: tuple[Path, Ended], summary: dict[str, Any]) -> None:
    run, ended = demo
    assert ended.code == 0, ended.err
    for stage in KEPT:
        (row,) = [line for line in ended.out.splitlines() if line.startswith(f"│ {stage} ")]
        measured = summary["stages"][stage]
        assert f"{measured['asr']:.3f}" in row
        assert f"{measured['r_acc']:.3f} ({measured['r_acc_std']:.3f})" in row
    assert summary["verdict"] in ended.out
    (named,) = re.findall(r"^Report: +(.+)$", ended.out, re.MULTILINE)
    assert (run.parents[1] / named) == run / "report.html"
    assert "Training 10 clients on digits, seed 0." in ended.err
    assert "carry a backdoor and are to be forgotten" in ended.err
    assert max(map(len, ended.out.splitlines()[:8])) <= 80


def test_the_table_shows_the_model_now_and_later(demo: tuple[Path, Ended], summary: dict[str, Any]) -> None:
    found = json.loads((demo[0] / "audit.json").read_text())
    assert found["dormancy"]["rounds"] == 40
    assert " later " in demo[1].out.splitlines()[2]
    for stage in (summary["final"], "retrained"):
        (row,) = [line for line in demo[1].out.splitlines() if line.startswith(f"│ {stage} ")]
        assert f"{found['dormancy']['models'][stage]['worst']:.3f}" in row
    assert all(own["spread"] is not None for own in found["way"].values())


def test_report_is_one_file_that_opens_offline(demo: tuple[Path, Ended], summary: dict[str, Any]) -> None:
    page = (demo[0] / "report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert not re.search(r"""(src|href)=["']?https?:""", page)
    assert f"{100 * summary['stages']['initial']['asr']:.1f}" in page


def test_summary_has_every_documented_key(summary: dict[str, Any]) -> None:
    assert summary["format"] == 1
    assert (summary["method"], summary["dataset"], summary["model"]) == ("fupareto", "digits", "mlp")
    assert summary["clients"] == [str(i) for i in range(10)]
    assert len(summary["forget"]) == 2
    assert set(summary["forget"]) < set(summary["clients"])
    assert tuple(summary["stages"]) == KEPT
    for measured in summary["stages"].values():
        assert measured.keys() >= MEASURES
        assert all(0 <= measured[key] <= 1 for key in MEASURES - {"mia_auc", "distance"})
    assert set(summary["cost"]) == {"rounds", "seconds", "bytes_up", "bytes_down", "passes"}
    assert set(summary["phases"]) == {"renew", "improve", "expand", "failed"}
    assert summary["status"] == "complete"
    assert summary["final"] == "unlearned"
    assert summary["missing"] == {}


def test_rounds_are_all_there(demo: tuple[Path, Ended], summary: dict[str, Any]) -> None:
    records = [json.loads(line) for line in (demo[0] / "rounds.jsonl").read_text().splitlines()]
    assert [r["round"] for r in records] == list(range(1, len(records) + 1))
    keys = {"stage", "phase", "missing", "seconds", "bytes_up", "bytes_down", "passes"}
    assert all(record.keys() >= keys for record in records)
    phases = [record["phase"] for record in records]
    renewed = phases.count("renew")
    assert renewed == 50  # a quarter of the training
    assert phases == ["renew"] * renewed + ["improve"] * (len(records) - renewed)
    for record in records[renewed:]:
        assert record.keys() >= {"losses", "step", "tried"}
        assert set(record["losses"]) <= set(summary["clients"])
        assert record["step"] is None or record["step"] in record["tried"]
    assert {record["passes"] for record in records[:renewed]} == {8}  # an epoch of every retained client
    stages = [r["stage"] for r in records]
    assert set(stages) == {"unlearned"}
    assert summary["cost"]["rounds"] == len(records)
    assert summary["cost"]["bytes_up"] == sum(r["bytes_up"] for r in records)
    assert sum(summary["phases"].values()) == stages.count("unlearned")
    last = {stage: [r for r in records if r["stage"] == stage][-1] for stage in KEPT[1:]}
    for stage, record in last.items():  # the line that ends a stage says what the audit finds again
        assert all(record[key] == summary["stages"][stage][key] for key in ("asr", "r_acc", "r_acc_min", "distance"))


def test_it_learns_and_forgets(summary: dict[str, Any]) -> None:
    initial, unlearned = summary["stages"]["initial"], summary["stages"]["unlearned"]
    assert initial["asr"] >= 0.6
    assert unlearned["asr"] <= 0.05
    assert unlearned["r_acc"] >= initial["r_acc"] - 0.01


def test_leaves_nothing_behind(demo: tuple[Path, Ended]) -> None:
    found = {name for name in files(demo[0].parents[1]) if "/replay" not in name}  # states that verify replays
    assert found == {"runs", "runs/demo"} | {
        f"runs/demo/{name}"
        for name in (
            *("config.toml", "request.json", "rounds.jsonl", "summary.json", "report.html", "training"),
            *(f"{stage}.safetensors" for stage in KEPT),
            *("manifest.json", "demo.json", "audit.json", "retrained", "retrained-2"),
            *(f"{place}/{n}" for place in ("retrained", "retrained-2") for n in RETRAINED),
            *(f"training/{n}" for n in ("config.toml", "rounds.jsonl", "summary.json", "manifest.json")),
            "training/initial.safetensors",
        )
    }


def test_killed_and_resumed_ends_the_same(demo: tuple[Path, Ended], tmp_path: Path) -> None:
    finished = demo[0]
    lines = tmp_path / "runs/demo/training/rounds.jsonl"
    Process("demo", cwd=tmp_path).kill_when(lambda: lines.is_file() and lines.read_bytes().count(b"\n") >= 5)
    # Continue from a training that was finished elsewhere, so that the test need not train twice.
    shutil.rmtree(tmp_path / "runs/demo/training")
    shutil.copytree(finished / "training", tmp_path / "runs/demo/training")
    lines = tmp_path / "runs/demo/rounds.jsonl"
    Process("demo", "--resume", cwd=tmp_path).kill_when(
        lambda: lines.is_file() and lines.read_bytes().count(b"\n") >= 5
    )
    ended = forked("demo", "--resume", "--json", "--quiet", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert json.loads(ended.out)["stages"] == json.loads((finished / "summary.json").read_text())["stages"]
    for stage in KEPT:
        name = f"{stage}.safetensors"
        assert (tmp_path / "runs/demo" / name).read_bytes() == (finished / name).read_bytes()
