"""Run directories against a second process, flipped bits, lost files, links and foreign code."""

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from fupareto import files, seal, trust
from fupareto.errors import UserError
from fupareto.experiment.setting import stored_experiment, stored_method
from fupareto.methods.base import State
from fupareto.run import lock
from fupareto.run.directory import Run
from manifests import relist

CONFIG: dict[str, Any] = {"kind": "unlearn", "experiment": {"seed": 3}}
SUMMARY: dict[str, Any] = {"method": "x", "dataset": "x", "forget": [], "stages": {}, "cost": {}, "phases": {}}
SUMMARY["verdict"] = "x"
AUDIT: dict[str, Any] = {"membership": {"new": {"clients": {}}}, "exclusivity": {}, "verdict": {}}


def record(number: int) -> dict[str, Any]:
    return {"round": number, "stage": "unlearned", "phase": "improve"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """An unfinished run of two rounds."""
    run = Run.create(tmp_path / "run", CONFIG, {"clients": ["3"]})
    run.save_model("initial", {"w": torch.arange(9.0)})
    for number in (1, 2):
        run.append(record(number))
        run.save_state(State(w=torch.arange(5.0), forget=("3",), retained=("1",), round=number))
    return run


@pytest.fixture
def finished(run: Run) -> Run:
    run.save_results({**SUMMARY, "final": "initial"}, {"membership": {}, "exclusivity": {}, "verdict": {}})
    return run


# One process at a time ---------------------------------------------------------------------------------------------

HOLD = """
import sys, pathlib
from fupareto.run import lock
with lock.held(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_process_is_refused_and_a_dead_one_is_not_waited_for(run: Run) -> None:
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = (run.path / "rounds.jsonl").read_bytes()
        writes = (lambda: run.append(record(3)), lambda: run.save_results(SUMMARY, None), lambda: run.save_report(""))
        for write in writes:
            with pytest.raises(UserError, match=rf"in use by process {holder.pid} on .* since "):
                write()
        with pytest.raises(UserError, match="in use by process"), Run.held(run.path, resume=True):
            pass
        assert (run.path / "rounds.jsonl").read_bytes() == before
        assert Run.open(run.path).rounds()  # to read needs no lock
        holder.kill()
    assert (run.path / lock.FILE).exists()  # left behind, and taken over
    run.append(record(3))
    assert not (run.path / lock.FILE).exists()


def test_a_second_thread_is_refused(run: Run) -> None:
    said: list[str] = []

    def other() -> None:
        try:
            run.append(record(3))
        except UserError as error:
            said.append(str(error))

    with run.locked():
        run.append(record(3))  # the thread that has it may go on
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "in use by another thread" in said[0]


def test_a_lock_that_is_a_link_is_not_followed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (run.path / lock.FILE).symlink_to(tmp_path / "target")
    with pytest.raises(UserError, match="cannot write"):
        run.append(record(3))
    assert (tmp_path / "target").read_text() == "precious"


def test_a_directory_that_stays_empty_is_removed_again(tmp_path: Path) -> None:
    with Run.held(tmp_path / "a/b", resume=False):
        assert (tmp_path / "a/b").is_dir()
    assert not list(tmp_path.iterdir())


# Damage ------------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found_at_opening_and_named(finished: Run) -> None:
    for name in sorted(p.name for p in finished.path.iterdir() if p.name != "manifest.json"):
        path = finished.path / name
        whole = path.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            with pytest.raises(UserError, match=name):
                Run.open(finished.path)
        path.unlink()
        with pytest.raises(UserError, match=name):
            Run.open(finished.path)
        path.write_bytes(whole)
    (finished.path / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest\.json is missing"):
        Run.open(finished.path)


def test_every_flipped_bit_of_a_checkpoint_is_found(run: Run) -> None:
    path = run.path / "checkpoint/state.safetensors"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(UserError, match=r"checkpoint .* is damaged"):
            run.load_state(State)
    path.write_bytes(whole)
    assert run.load_state(State) is not None


@pytest.mark.parametrize("left", ["", "{", '{"round": 1, "stage": "unlearned", "phase": "improve"}\n'])
def test_lost_lines_are_noticed_at_resume(run: Run, left: str) -> None:
    (run.path / "rounds.jsonl").write_text(left)
    with pytest.raises(UserError, match=r"rounds\.jsonl is damaged: lines of the 2 rounds before the checkpoint"):
        run.load_state(State)
    (run.path / "rounds.jsonl").unlink()
    with pytest.raises(UserError, match=r"rounds\.jsonl is damaged"):
        run.load_state(State)


def test_rounds_without_a_checkpoint_are_not_begun_again(run: Run) -> None:
    (run.path / "checkpoint/state.safetensors").unlink()
    with pytest.raises(UserError, match="has rounds but no checkpoint"):
        run.load_state(State)


def test_a_run_of_format_1_is_read_without_a_manifest(finished: Run) -> None:
    text = (finished.path / "config.toml").read_text()
    (finished.path / "config.toml").write_text(text.replace("format = 2", "format = 1"))
    (finished.path / "manifest.json").unlink()
    assert Run.open(finished.path).rounds() == [record(1), record(2)]
    finished.save_results(SUMMARY, None)
    assert Run.open(finished.path).finished


def test_a_sealed_file_is_an_ordinary_safetensors_file() -> None:
    import safetensors.torch

    data = seal.sealed({"w": torch.arange(3.0)}, {"more": "values"})
    assert torch.equal(safetensors.torch.load(data)["w"], torch.arange(3.0))
    assert seal.check(data)["more"] == "values"
    with pytest.raises(ValueError, match="no SHA-256"):
        seal.check(safetensors.torch.save({"w": torch.arange(3.0)}))


# What a finished run holds, and who may read it ----------------------------------------------------------------------


def test_the_checkpoint_goes_when_the_run_ends(finished: Run) -> None:
    assert not (finished.path / "checkpoint").exists()
    finished.save_state(State(w=torch.ones(1), forget=(), retained=()))  # as if it had been killed before that
    Run.make(finished.path, CONFIG, {"clients": ["3"]}, resume=True)
    assert not (finished.path / "checkpoint").exists()


@pytest.mark.parametrize("asked", [False, True])
def test_files_are_private_unless_the_umask_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    if asked:
        monkeypatch.setenv(files.UMASK, "1")
    before = os.umask(0o027)
    try:
        run = Run.create(tmp_path / "a/run", CONFIG, {"clients": ["3"]})
        run.append(record(1))
        run.save_state(State(w=torch.ones(1), forget=(), retained=()))
        found = {stat.S_IMODE(p.stat().st_mode) for p in run.path.rglob("*") if p.is_file()}
        folders = {stat.S_IMODE(p.stat().st_mode) for p in (run.path.parent, run.path, run.path / "checkpoint")}
    finally:
        os.umask(before)
    assert (found, folders) == (({0o640}, {0o750}) if asked else ({0o600}, {0o700}))


# Directories that came from elsewhere --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["report.html", "summary.json", "initial.safetensors", "manifest.json"])
def test_links_in_a_run_are_refused(finished: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "target").write_bytes((finished.path / name).read_bytes() if name != "report.html" else b"precious")
    (finished.path / name).unlink(missing_ok=True)
    (finished.path / name).symlink_to(tmp_path / "target")
    with pytest.raises(UserError, match=rf"{name} is a symbolic link"):
        Run.open(finished.path)
    with pytest.raises(OSError, match="symbolic link"):
        files.read(finished.path / name)
    before = (tmp_path / "target").read_bytes()
    finished.save_report("<p>")
    assert (tmp_path / "target").read_bytes() == before


def test_temporary_files_cannot_be_foreseen(finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "target").write_text("precious")
    for name in (".report.html.part", f".fupareto-{0:016x}.part"):
        (finished.path / name).symlink_to(tmp_path / "target")
    finished.save_report("<p>")
    monkeypatch.setattr("secrets.token_hex", lambda size: f"{0:016x}")  # as if it had been foreseen
    with pytest.raises(UserError, match="File exists"):
        finished.save_report("<p>other")
    assert (tmp_path / "target").read_text() == "precious"
    assert (finished.path / "report.html").read_text() == "<p>"


def test_a_pipe_is_not_read(finished: Run) -> None:
    (finished.path / "audit.json").unlink()
    os.mkfifo(finished.path / "audit.json")
    with pytest.raises(UserError, match=r"audit\.json: it is not a regular file"):
        Run.open(finished.path)


def test_nothing_but_a_regular_file_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            files.put(tmp_path / name, b"x")


@pytest.mark.parametrize("final", ["../secret/w", "/etc/passwd", "retrained", ["initial"], None])
def test_stages_come_from_a_fixed_list(finished: Run, final: Any) -> None:
    (finished.path / "summary.json").write_text(json.dumps({**SUMMARY, "final": final}))
    relist(finished.path)
    with pytest.raises(UserError, match=r"summary\.json is damaged: final: .* 'initial', 'unlearned' or 'recovered'"):
        _ = Run.open(finished.path).summary
    with pytest.raises(UserError, match="there is no stage"):
        finished.load_model("../secret/w")


@pytest.mark.parametrize("name", ["../other", "/etc/passwd", "a/../../b"])
def test_a_manifest_names_files_of_the_run_only(finished: Run, name: str) -> None:
    text = json.dumps({"format": 1, "files": {name: [64 * "0"]}})
    (finished.path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        Run.open(finished.path)


def test_stored_code_is_imported_only_if_it_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.forget()
    run = Run.create(tmp_path / "run", {**CONFIG, "experiment": {"model": "evil:f"}}, {"clients": ["3"]})
    with pytest.raises(UserError, match=r"config\.toml names the model 'evil:f'.*--trust-code"):
        stored_experiment(run)
    with pytest.raises(UserError, match=r"names the method 'evil:C'.*--trust-code"):
        stored_method(run, "evil:C")
    assert stored_method(run, "fupareto:paper") == "fupareto:paper"
    trust.name("evil:C", None)
    assert stored_method(run, "evil:C") == "evil:C"
    trust.everything()
    assert stored_experiment(run).model == "evil:f"
    trust.forget()
    with pytest.raises(UserError, match="--trust-code"):
        stored_method(run, "evil:C")


def test_an_audit_that_was_cut_off_before_its_summary_is_none(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files cannot be replaced at once; what is between them counts as not audited."""
    put = files.put

    def cut(path: Path, data: bytes) -> None:
        if path.name == "summary.json":
            raise OSError(5, "Input/output error")
        put(path, data)

    monkeypatch.setattr(files, "put", cut)
    with pytest.raises(UserError, match="cannot write"):
        finished.save_results(SUMMARY, AUDIT)
    monkeypatch.undo()
    run = Run.open(finished.path)
    assert run.audit is None
    assert run.summary["final"] == "initial"
    run.save_results(SUMMARY, AUDIT)
    assert (Run.open(finished.path).audit or {})["membership"] == AUDIT["membership"]
