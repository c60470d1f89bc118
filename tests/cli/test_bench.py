"""The bench on the command line: killed and run again, at the small scale, and every mistake in its file."""

import io
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fupareto import progress
from manifests import relist

from .commands import SCRIPT, Process, files, forked
from .conftest import Call

BENCH = """
name = "tiny"
title = "Digits"
paper = "table1"
seeds = [0, 1]

[experiment]
data = { samples = 300 }
partition = { kind = "iid", clients = 4 }
train = { rounds = 4 }

[[settings]]
name = "CN=1"
experiment = { request = { clients = 1 } }
paper = { dataset = "FMNIST", CN = 1 }

[scales.small]
reduced = "two rounds of training"
experiment = { train = { rounds = 2 } }
seeds = [3]
options = { rounds = 2 }

[[methods]]
method = "retrain"
label = "Retraining"
options = { rounds = 3 }
paper = "Retraining"

[[methods]]
method = "fupareto"
label = "FUPareto s=3"
options = { lr = 0.05, rounds = 4, recovery_rounds = 2 }
paper = "FUPareto s=3"
"""
WRITTEN = (
    *("results.json", "membership.md", "membership.tex", "table.md", "table.tex", "cost.md", "cost.tex"),
    *("convergence-cn1.svg", "convergence-cn1.png", "pareto-cn1.svg", "pareto-cn1.png"),
    "report.html",
)


REPOSITORY = Path(__file__).parents[2]


def results(path: Path) -> Any:
    return json.loads((path / "results.json").read_text())


def test_killed_and_run_again(tmp_path: Path) -> None:
    """What is finished stays as it is, and what is known is on disk."""
    (tmp_path / "bench.toml").write_text(BENCH)
    out = tmp_path / "runs/bench/tiny"
    begun = out / "cn1/seed-0/fupareto-s3/rounds.jsonl"
    Process("bench", "bench.toml", cwd=tmp_path).kill_when(begun.exists)
    assert [cell["label"] for cell in results(out)["cells"]] == ["Retraining"]
    summaries = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    assert {path.parent.name for path in summaries} == {"training", "retraining"}
    for path in summaries:
        (path.parent / ".lock").touch()  # as if the kill had come at its end

    ended = forked("bench", "bench.toml", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert {path: path.stat().st_mtime_ns for path in summaries} == summaries
    assert [line for line in ended.out.splitlines() if line.startswith("runs/")] == [
        f"runs/bench/tiny/{name}" for name in WRITTEN
    ]
    assert all((out / name).stat().st_size > 0 for name in WRITTEN)
    for cell in results(out)["cells"]:
        run = out / "cn1" / f"seed-{cell['seed']}" / ("retraining" if cell["label"] == "Retraining" else "fupareto-s3")
        audit = json.loads((run / "audit.json").read_text())["membership"]
        assert cell["membership"].keys() == audit.keys()
        for stage, told in cell["membership"].items():
            assert told["clients"] == {i: c["attacks"]["confidence"] for i, c in audit[stage]["clients"].items()}
            assert told["mean"] == audit[stage]["mean"].get("confidence")
            assert told["attacks"] == audit[stage]["mean"]
        rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
        low = next((k for k, record in enumerate(rounds, 1) if record["asr"] <= 0.05), None)
        assert (cell["until"] or {}).get("rounds") == low
        if low:
            assert cell["until"]["bytes_up"] == sum(record["bytes_up"] for record in rounds[:low])
            assert cell["until"]["passes"] == pytest.approx(sum(record["passes"] for record in rounds[:low]))
            assert cell["until"]["r_acc"] == rounds[low - 1]["r_acc"]
    pages = {name: (out / name).read_bytes() for name in WRITTEN[1:]}
    (out / "report.html").unlink()
    again = forked("report", "runs/bench/tiny", cwd=tmp_path)
    assert (again.code, len(again.out.splitlines())) == (0, len(pages)), again.err
    assert {name: (out / name).read_bytes() for name in pages} == pages
    assert b"figure-convergence-0" in pages["report.html"]
    lines = (out / "membership.md").read_text().splitlines()
    assert sum(line.startswith("| w0 |") for line in lines) == 2  # one table per seed
    assert not [*out.rglob("*.part"), *out.rglob(".lock")]
    assert "0.921 / 0.831 (0.101)" in ended.out  # the paper's w0
    assert "ratio" in ended.out
    assert re.search(r"\[4/4\] CN=1, seed 1, FUPareto s=3: ASR \d\.\d+ R-Acc \d\.\d+\n", ended.err)
    assert [(c["seed"], c["label"], c["status"]) for c in results(out)["cells"]] == [
        (seed, label, "complete") for seed in (0, 1) for label in ("Retraining", "FUPareto s=3")
    ]


def test_small_scale(tmp_path: Path) -> None:
    """Another directory, fewer rounds and seeds, and every table says so; a request without a trigger, too."""
    classes = BENCH.replace("request = { clients = 1 }", "request = { classes = [3] }").replace("[scales.small]", ALONE)
    (tmp_path / "bench.toml").write_text(classes)
    ended = forked("bench", "bench.toml", "--scale", "small", cwd=tmp_path)
    assert ended.code == 0, ended.err
    out = tmp_path / "runs/bench/tiny-small"
    found = results(out)
    assert (found["scale"], found["reduced"]) == ("small", "two rounds of training")
    assert [(c["seed"], c["label"]) for c in found["cells"]] == [
        (3, label) for label in ("one by one", "Retraining", "FUPareto s=3")
    ]
    assert found["cells"][1]["cost"]["rounds"] == 2
    for name in ("table.md", "table.tex", "cost.md", "cost.tex"):
        assert "SMALL SCALE, reduced: two rounds of training" in (out / name).read_text()
    assert "SMALL SCALE" in ended.out
    assert "forget acc. / R-Acc (std)" in ended.out
    assert "not applicable (1)" in ended.out
    assert "one by one, CN=1, not applicable: sequential unlearning" in ended.out
    assert "one by one: not applicable: sequential unlearning needs" in ended.err


ALONE = '[[methods]]\nmethod = "fupareto"\nlabel = "one by one"\nsequential = true\n\n[scales.small]'


def test_a_method_that_diverges_is_a_result(tmp_path: Path) -> None:
    """The bench goes on, says so in its tables, and does not call the cell complete."""
    wild = '[[methods]]\nmethod = "finetune"\nlabel = "Wild"\noptions = { lr = 1e9, rounds = 4 }\n\n[scales.small]'
    (tmp_path / "bench.toml").write_text(BENCH.replace("[scales.small]", wild).replace("[0, 1]", "[0]"))
    for reason in ("the method has diverged: no client's", "no client gave"):  # the second time, it was tried before
        ended = forked("bench", "bench.toml", "--out", "here", cwd=tmp_path)
        assert ended.code == 0, ended.err
        assert f"Wild: diverged: {reason}" in ended.err
        assert "diverged (1)" in ended.out
        told = {c["label"]: c["status"] for c in results(tmp_path / "here")["cells"]}
        assert told == {"Wild": "diverged", "Retraining": "complete", "FUPareto s=3": "complete"}
    assert "Wild, CN=1, diverged: no client gave" in (tmp_path / "here/table.md").read_text()
    assert not (tmp_path / "here/cn-1/seed-0/wild/summary.json").exists()


def test_interrupted_by_the_user(tmp_path: Path) -> None:
    """Ctrl-C says how to go on: with the same command, as a bench resumes by itself."""
    (tmp_path / "a bench.toml").write_text(BENCH.replace("rounds = 4 }", "rounds = 400 }"))
    process = subprocess.Popen(
        [SCRIPT, "bench", "a bench.toml", "--out", "here"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "here/cn1/seed-0/training/rounds.jsonl").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Continue with: fupareto bench 'a bench.toml' --out here\n" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('method = "retrain"', 'method = "retrian"', "unknown method 'retrian'"),
        ("seeds = [0, 1]", "seeds = [0, 1]\nsede = 1", "sede: unknown key"),
        ("options = { rounds = 3 }", "options = { round = 3 }", "did you mean 'rounds'?"),
        ('label = "FUPareto s=3"', 'label = "retraining"', "methods: two entries have the same name"),
        ("train = { rounds = 4 }", "train = { rounds = 0 }", "train.rounds"),
        ('paper = "Retraining"', 'paper = "Retrain"', "the paper's table1 has no row 'Retrain'"),
        ("CN = 1 }", "CN = 2 }", "the paper's table1 has no column"),
        ('paper = "table1"\n', "", "does not name a table"),
        ('name = "tiny"', 'name = "Tiny/.."', "name = 'Tiny/..'"),
        ("seeds = [0, 1]", "seeds = [0, 1", "is not valid TOML"),
    ],
)
def test_mistakes_in_the_file(mistake: Callable[..., str], tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in BENCH
    (tmp_path / "bench.toml").write_text(BENCH.replace(old, new, 1))
    mistake("bench", "bench.toml", says=(says,))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "not an object"),
        ("{}", "not the results.json of a bench"),
        ('{"format": 1, "settings"', "cannot read results.json"),
        ('{"format": 2}', "format"),
    ],
)
def test_a_page_of_something_else(mistake: Callable[..., str], tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "results.json").write_text(content)
    mistake("report", "results.json", says=(says,))


def test_a_damaged_results_file(mistake: Callable[..., str], tmp_path: Path) -> None:
    """Whatever a cell lacks is named; nothing is written."""
    whole = json.loads((REPOSITORY / "results/requests-digits.json").read_text())
    damages: list[tuple[Callable[[Any], object], str]] = [
        (lambda cell: cell["stages"].pop("initial"), "lacks w0"),
        (lambda cell: cell["stages"]["unlearned"].pop("r_acc"), "lacks r_acc"),
        (lambda cell: cell["stages"]["unlearned"].update(asr="much"), "valid number"),
        (lambda cell: cell.pop("cost"), "lacks cost"),
        (lambda cell: cell.update(label="another"), "not listed"),
        (lambda cell: cell.update(membership={"initial": {"clients": {}, "mean": None}}), "final model"),
    ]
    for damage, says in damages:
        damaged = json.loads(json.dumps(whole))
        damage(damaged["cells"][1])
        (tmp_path / "results.json").write_text(json.dumps(damaged))
        mistake("report", "results.json", says=("results.json", says))
    mistake("report", "results.json", "--figures", "here", says=("--figures is for a run",))


def test_the_page_of_a_file_alone(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPOSITORY / "results/requests-digits.json", "mine.json")
    ended = call("report", "mine.json")
    assert (ended.code, ended.out) == (0, "mine.html\n")
    assert "Requests for samples and for a class" in Path("mine.html").read_text()


def test_mistakes_on_the_command_line(mistake: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text(BENCH)
    (tmp_path / "file").write_text("")
    mistake("bench", "none.toml", says=("there is no bench file none.toml",))
    mistake("bench", "bench.toml", "--scale", "tiny", says=("tiny", "full, small"))
    mistake("bench", "bench.toml", "--out", "file", says=("file",))


def test_a_directory_of_another_bench_is_left_alone(call: Call, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.toml").write_text(BENCH)
    ended = call("bench", "bench.toml", "--scale", "small", "--quiet", "--json", "--out", "here")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == results(tmp_path / "here")
    before = files(tmp_path / "here")
    (tmp_path / "bench.toml").write_text(BENCH.replace("samples = 300", "samples = 200"))
    ended = call("bench", "bench.toml", "--scale", "small", "--quiet", "--out", "here")
    assert (ended.code, ended.out) == (2, "")
    assert "was trained with other settings" in ended.err
    assert files(tmp_path / "here") == before


def test_comparison_beside_the_paper(call: Call, small: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("ours", "other"):
        shutil.copytree(small / "forgotten", tmp_path / name)
    ended = call("compare", "ours", "other")
    assert "paper" not in ended.out.lower()
    summary = json.loads((tmp_path / "ours/summary.json").read_text())
    summary |= {"dataset": "gtsrb", "clients": [str(i) for i in range(20)], "forget": ["1"]}
    (tmp_path / "ours/summary.json").write_text(json.dumps(summary))
    relist(tmp_path / "ours")
    ended = call("compare", "ours", "other")
    assert ended.code == 0
    lines = [line for line in ended.out.splitlines() if "unlearned" in line]
    assert re.search(r"│ +0\.006 │ +0\.989 │$", lines[0])  # FUPareto with s = 3, the default
    assert re.search(r"│ +– │ +– │$", lines[1])
    assert "Paper: FUPareto, arXiv 2602.01852, Table I" in ended.out


CELLS = [(f"{setting}, seed {seed}", label) for setting in "AB" for seed in (1, 2) for label in ("x", "[y]")]
RECORD = {"phase": "improve", "asr": 0.25, "r_acc": 0.5}


def shown(board: progress.TableBoard, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(board.table(width))
    return captured.get()


def test_the_live_table() -> None:
    board = progress.TableBoard(CELLS)
    stage = {"asr": 0.003, "forget_acc": 0.1, "r_acc": 0.862}
    complete = {"status": "complete", "final": "unlearned", "stages": {"unlearned": stage}}
    with board.rounds("training", 800) as watch:
        assert watch is not None
        watch({"round": 34, **RECORD})
        text = shown(board, 80)
        assert "0 of 8 cells. improve, ASR 0.250, R-Acc 0.500" in text
        assert "round 34/800" in text
        assert "waiting" in text
    with board.rounds("unlearning", 200) as watch:
        assert watch is not None
        watch({"round": 7, **RECORD})
        assert "round 7/200" in shown(board, 80)
    board.done(complete)
    board.done({"status": "not applicable", "error": "why"})
    text = shown(board, 80)
    assert "ASR 0.003 R-Acc 0.862" in text
    assert "not applicable" in text
    assert "[y]" in text
    for _ in range(6):
        board.done(complete)
    assert "8 of 8 cells" in shown(board, 80)


def test_the_live_table_follows_the_work() -> None:
    """Of more columns than fit, those that end with the one at work are to be seen."""
    board = progress.TableBoard(CELLS)
    for _ in range(6):
        board.done({"status": "not applicable", "error": "why"})
    text = shown(board, 60)
    assert "B, seed 2" in text
    assert "A, seed 1" not in text
    assert max(map(len, text.splitlines())) <= 60


def test_bench_has_help(call: Call) -> None:
    ended = call("bench", "--help")
    assert ended.code == 0
    assert "--scale" in ended.out


def test_a_bench_may_ask_for_retrained_models(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made once for all methods of a setting and seed, and nothing is done twice."""
    monkeypatch.chdir(tmp_path)
    asked = BENCH.replace("seeds = [0, 1]", "seeds = [3]\naudit = { retrain = 2, dormancy = 2 }", 1)
    Path("bench.toml").write_text(asked)
    out = tmp_path / "runs/bench/tiny"
    ended = call("bench", "bench.toml", "--quiet")
    assert ended.code == 0, ended.err
    assert {path.name for path in (out / "cn1/seed-3").iterdir()} == {
        *("training", "reference", "reference-2", "curves", "retraining", "fupareto-s3")
    }
    for cell in results(out)["cells"]:
        told = cell["lasting"]
        assert told["rounds"] == 2
        assert set(told["models"]) == {"initial", cell["final"], "retrained", "retrained-2"}
        for own in told["models"].values():
            assert all(own[key] is not None for key in ("later", "relearning", "loss", "divergence"))
        assert set(told["way"]) == {"asr", "later", "relearning", "loss", "divergence"}
        assert told["retraining"]["rounds"] == results(out)["experiment"]["train"]["rounds"]
    table = (out / "lasting.md").read_text()
    for word in ("w0", "retrained", "FUPareto s=3", "later", "relearning", "loss AUC", "way: divergence"):
        assert word in table
    rows = {cells[1].strip(): cells[-4:-1] for line in table.splitlines() if len(cells := line.split("|")) > 12}
    models = results(out)["cells"][-1]["lasting"]["models"]
    apart = models[results(out)["cells"][-1]["final"]]["divergence"] / models["retrained-2"]["divergence"]
    assert rows["FUPareto s=3"][0].strip() == f"{apart:.1f} ×"
    assert rows["retrained"][0].strip() == "0.0 ×"
    assert rows["retrained"][2].strip() != "–"
    before = {path: path.stat().st_mtime_ns for path in out.rglob("audit.json")}
    assert len(before) == 2
    assert call("bench", "bench.toml", "--quiet").code == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    Path("bench.toml").write_text(asked.replace("retrain = 2", "retrain = 3"))
    assert "audit.retrain" in call("bench", "bench.toml").err
