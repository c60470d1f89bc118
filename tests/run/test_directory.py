"""The run directory: what is written is read back, files are replaced whole, and trouble is named."""

import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from fupareto.errors import UserError
from fupareto.methods.base import State
from fupareto.run.directory import Run, without_none
from fupareto.run.in_memory import MemoryRun

CONFIG = {"kind": "train", "experiment": {"seed": 3, "samples": None, "rates": (0.5, 0.25)}, "versions": {"torch": "2"}}
REQUEST = {"clients": ["3", "<script>"]}
SUMMARY = {"method": "ü", "dataset": "ü", "forget": ["ü"], "stages": {}, "cost": {}, "phases": {}, "verdict": "ü"}
PART = f".fupareto-{0:016x}.part"  # of a process that was killed


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "a/run", CONFIG, REQUEST)


def state(number: int, **changes: Any) -> State:
    return State(w=torch.arange(5.0), forget=("3",), retained=("1", "2"), round=number, **changes)


def record(number: int) -> dict[str, Any]:
    return {"round": number, "stage": "unlearned", "phase": "improve", "x": 0.1 + 0.2}


def files(run: Run) -> dict[str, bytes]:
    return {str(p.relative_to(run.path)): p.read_bytes() for p in run.path.rglob("*") if p.is_file()}


def test_what_is_written_is_read_back(run: Run) -> None:
    again = Run.open(run.path)
    assert again.config == {"format": 2, **without_none(CONFIG)}
    assert again.config["experiment"] == {"seed": 3, "rates": [0.5, 0.25]}
    assert again.request["clients"] == REQUEST["clients"]
    assert again.request["received"].endswith("+00:00")
    assert again.rounds() == []
    assert again.load_state(State) is None
    assert again.load_model("initial") is None
    for number in (1, 2):
        run.append(record(number))
    assert again.rounds() == [record(1), record(2)]
    run.save_state(state(2, record={"losses": {"1": 0.1}}))
    loaded = again.load_state(State)
    assert loaded is not None
    assert torch.equal(loaded.w, state(2).w)
    assert (loaded.round, loaded.forget, loaded.record) == (2, ("3",), {"losses": {"1": 0.1}})
    weights = {"b.weight": torch.randn(3, 2).T, "a": torch.tensor(1.0)}
    run.save_model("initial", weights)
    read = again.load_model("initial")
    assert read is not None
    assert all(torch.equal(read[name], weights[name]) for name in weights)
    assert not again.finished
    run.save_summary(SUMMARY)
    assert again.finished
    assert again.summary == SUMMARY
    assert again.save_report("<p>ü") == run.path / "report.html"
    assert (run.path / "report.html").read_text(encoding="utf-8") == "<p>ü"


def test_lines_after_the_checkpoint_are_dropped_on_resume(run: Run) -> None:
    for number in (1, 2, 3):
        run.append(record(number))
        if number == 2:
            run.save_state(state(2))
    whole = (run.path / "rounds.jsonl").read_bytes()
    with (run.path / "rounds.jsonl").open("ab") as file:
        file.write(b'{"round": 4, "st')  # cut off
    assert [r["round"] for r in run.rounds()] == [1, 2, 3]
    run.load_state(State)
    assert (run.path / "rounds.jsonl").read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])


def test_numbers_that_json_does_not_have_are_refused(run: Run) -> None:
    with pytest.raises(ValueError):
        run.append({"round": 1, "x": float("nan")})
    assert run.rounds() == []
    with pytest.raises(ValueError):
        run.save_summary({"asr": float("inf")})
    assert not run.finished


@pytest.mark.parametrize("left", [[], ["request.json"], ["request.json", ".lock", PART], ["manifest.json", PART]])
def test_a_run_that_never_began_can_be_begun(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).write_text('{"format": 1, "files": {}}')
    for resume in (False, True):
        assert not Run.begun(tmp_path)
        run = Run.make(tmp_path, CONFIG, REQUEST, resume)
        assert run.request["clients"] == REQUEST["clients"]
        assert Run.open(tmp_path).config["kind"] == "train"
        assert not list(tmp_path.glob("*.part"))
        (tmp_path / "config.toml").unlink()


def test_a_place_that_holds_anything_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("mine")
    with pytest.raises(UserError, match="already exists; continue the run with --resume, or choose another --out"):
        Run.create(tmp_path, CONFIG, None)
    with pytest.raises(UserError, match="already exists"):
        Run.create(tmp_path / "diary.txt", CONFIG, None)
    with pytest.raises(UserError, match=r"cannot create the directory .*: Not a directory"):
        Run.create(tmp_path / "diary.txt/x", CONFIG, None)
    assert [p.name for p in tmp_path.iterdir()] == ["diary.txt"]


@pytest.mark.parametrize(
    ("config", "request_", "differs"),
    [
        ({**CONFIG, "experiment": {"seed": 4}}, REQUEST, "experiment"),
        ({**CONFIG, "kind": "unlearn"}, REQUEST, "kind"),
        ({**CONFIG, "method": {"lr": 1}}, REQUEST, "method"),
        (CONFIG, {"clients": ["3"]}, "request"),
    ],
)
def test_resume_needs_the_same_work(run: Run, config: dict[str, Any], request_: dict[str, Any], differs: str) -> None:
    before = files(run)
    with pytest.raises(UserError, match=f"another {differs}"):
        Run.make(run.path, config, request_, resume=True)
    assert files(run) == before


def test_resume_does_not_mind_other_versions(run: Run) -> None:
    Run.make(run.path, {**CONFIG, "versions": {"torch": "3"}, "trained": "elsewhere"}, REQUEST, resume=True)
    with pytest.raises(UserError, match="already exists"):
        Run.make(run.path, CONFIG, REQUEST, resume=False)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "No space left on device; free some space and continue with --resume"),
        (errno.EROFS, "the directory is read-only"),
        (errno.EACCES, "no permission"),
        (errno.EIO, "fix the cause and continue with --resume"),
    ],
)
def test_trouble_with_the_disk(run: Run, monkeypatch: pytest.MonkeyPatch, number: int, advice: str) -> None:
    run.save_state(state(1))
    run.save_model("initial", {"w": torch.ones(3)})
    run.append(record(1))
    before = files(run)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    writes = (
        lambda: run.save_state(state(2)),
        lambda: run.save_model("initial", {"w": torch.zeros(3)}),
        lambda: run.save_summary({}),
        lambda: run.save_report("<p>"),
    )
    for patched, name in ((os, "fsync"), (Path, "replace"), (os, "write")):
        with monkeypatch.context() as broken:
            broken.setattr(patched, name, fail)
            for write in writes:
                with pytest.raises(UserError, match=advice) as caught:
                    write()
                assert str(run.path) in str(caught.value)
            if name != "replace":
                with pytest.raises(UserError, match=advice):
                    run.append(record(2))
        assert files(run) == before  # and no half-written file beside them
    with monkeypatch.context() as broken:
        broken.setattr(os, "open", fail)
        with pytest.raises(UserError, match=f"cannot read .*config.toml: {os.strerror(number)}"):
            _ = run.config


@pytest.mark.parametrize("name", ["initial.safetensors", "checkpoint/state.safetensors", "summary.json", "config.toml"])
def test_every_truncation_is_noticed(run: Run, name: str) -> None:
    run.save_model("initial", {"w": torch.ones(3)})
    if name == "summary.json":
        run.save_summary(SUMMARY)
    run.save_state(state(1))
    whole = (run.path / name).read_bytes()
    reads: dict[str, Any] = {
        "initial.safetensors": lambda: run.load_model("initial"),
        "checkpoint/state.safetensors": lambda: run.load_state(State),
        "summary.json": lambda: run.summary,
        "config.toml": lambda: Run.open(run.path),
    }
    unnoticed = []
    for length in range(len(whole) - 1):
        (run.path / name).write_bytes(whole[:length])
        try:
            reads[name]()
        except UserError as error:
            assert str(run.path) in str(error)  # noqa: PT017
        else:
            unnoticed.append(length)
    assert unnoticed == []


@dataclass(frozen=True)
class OtherState(State):
    more: dict[str, int] = field(default_factory=dict)


def test_checkpoint_of_another_method(run: Run) -> None:
    run.save_state(OtherState(w=torch.ones(1), forget=(), retained=()))
    with pytest.raises(UserError, match=r"checkpoint .* is damaged"):
        run.load_state(State)


def test_memory_keeps_the_same() -> None:
    memory = MemoryRun()
    memory.append({"round": 1})
    memory.save_model("initial", {"w": torch.ones(2)})
    memory.save_state(state(1))
    assert memory.rounds() == [{"round": 1}]
    assert memory.load_state(State) is None
    assert memory.load_model("recovered") is None
    assert memory.load_model("initial") is not None


def test_lines_are_json_lines(run: Run) -> None:
    run.append({**record(1), "text": "two\nlines, ü"})
    assert [json.loads(line)["text"] for line in (run.path / "rounds.jsonl").read_text().splitlines()] == [
        "two\nlines, ü"
    ]
