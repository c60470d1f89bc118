"""The commands that do what they should, from the experiment file to the comparison."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fupareto import config

from .commands import SCRIPT, files, fupareto
from .conftest import Call

COMMANDS = ("demo", "train", "unlearn", "audit", "report", "compare", "data")


def test_help_lists_every_command() -> None:
    ended = fupareto("--help")
    assert ended.code == 0
    for command in COMMANDS:
        assert f" {command} " in ended.out


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'sklearn', 'matplotlib', 'pydantic', 'scipy'}"
    code = (
        "import sys; from fupareto.cli import main; sys.argv = ['fupareto', '--help']\n"
        f"try:\n    main()\nfinally:\n    print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(call: Call, command: str) -> None:
    ended = call(command, "--help")
    assert ended.code == 0
    assert "Usage:" in ended.out


def test_no_command_shows_help() -> None:
    done = subprocess.run([SCRIPT], capture_output=True, text=True)
    assert "Usage:" in done.stdout + done.stderr
    assert done.returncode in (0, 2)


def test_training_run(small: Path) -> None:
    run = small / "trained"
    assert set(files(run)) == {
        *("config.toml", "rounds.jsonl", "initial.safetensors", "summary.json", "report.html"),
        "manifest.json",
    }
    summary = json.loads((run / "summary.json").read_text())
    assert tuple(summary["stages"]) == ("initial",)
    assert summary["method"] == "fedavg"
    assert summary["cost"]["rounds"] == 6
    assert "before" not in summary["verdict"]  # nothing was forgotten, so nothing is said of forgetting
    assert len((run / "rounds.jsonl").read_text().splitlines()) == 6


def test_unlearning_run(small: Path) -> None:
    summary = json.loads((small / "forgotten/summary.json").read_text())
    trained = json.loads((small / "trained/summary.json").read_text())
    assert summary["stages"]["initial"] | {"mia_auc": None} == trained["stages"]["initial"]
    assert summary["forget"] == trained["forget"]
    assert " before" in summary["verdict"]
    request = json.loads((small / "forgotten/request.json").read_text())
    assert request["clients"] == summary["forget"]
    assert (small / "trained/initial.safetensors").read_bytes() == (
        small / "forgotten/initial.safetensors"
    ).read_bytes()


def test_audit_measures_the_same_again(call: Call, small: Path, tmp_path: Path) -> None:
    for name in ("trained", "forgotten"):
        shutil.copytree(small / name, tmp_path / name)
        before = json.loads((tmp_path / name / "summary.json").read_text())
        ended = call("audit", tmp_path / name, "--json")
        assert ended.code == 0
        assert json.loads(ended.out) == before
        assert json.loads((tmp_path / name / "summary.json").read_text()) == before


def test_report_is_written_again(call: Call, small: Path, tmp_path: Path) -> None:
    shutil.copytree(small / "forgotten", tmp_path / "run")
    (tmp_path / "run/report.html").unlink()
    ended = call("report", tmp_path / "run")
    assert (ended.code, ended.out) == (0, f"{tmp_path / 'run/report.html'}\n")
    assert (tmp_path / "run/report.html").read_text().count("<svg") >= 1


def test_comparison(call: Call, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small)
    monkeypatch.setenv("COLUMNS", "120")
    ended = call("compare", "trained", "forgotten", "--out", tmp_path / "page.html")
    assert ended.code == 0
    assert all(word in ended.out for word in ("trained", "forgotten", "initial", "unlearned", "recovered"))
    assert str(tmp_path / "page.html") in ended.err
    assert "forgotten" in (tmp_path / "page.html").read_text()
    ended = call("compare", "trained", "forgotten", "--json")
    assert {path: summary["method"] for path, summary in json.loads(ended.out).items()} == {
        "trained": "fedavg",
        "forgotten": "fupareto",
    }


def test_other_request_and_options(call: Call, small: Path, tmp_path: Path) -> None:
    args = ("--clients", "4, 0,4", "--set", "rounds=1", "--set", "loss=uce", "--set", "recovery=none")
    ended = call("unlearn", small / "trained", *args, "--out", tmp_path / "run", "--json", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    summary = json.loads(ended.out)
    assert summary["forget"] == ["0", "4"]
    assert summary["cost"]["rounds"] == 5  # one of forgetting, and the four of recovery that the file asks for
    config = (tmp_path / "run/config.toml").read_text()
    assert all(line in config for line in ('loss = "uce"', 'recovery = "none"', "rounds = 1", "recovery_rounds = 4"))


def test_the_training_of_renewal_can_be_set(call: Call, small: Path, tmp_path: Path) -> None:
    args = ("--set", "renewal=0.5", "--set", "training.lr=0.02", "--set", "rounds=1", "--set", "recovery_rounds=0")
    ended = call("unlearn", small / "trained", *args, "--out", tmp_path / "run", "--json", "--quiet")
    assert json.loads(ended.out)["phases"]["renew"] == 3 + 1  # half of the rounds, and as many as are averaged
    third = json.loads((tmp_path / "run/rounds.jsonl").read_text().splitlines()[2])
    before, now = third["held_out"]
    assert now < before - 0.02
    assert "rounds added: 1" in third["note"]
    method = tomllib.loads((tmp_path / "run/config.toml").read_text())["method"]
    assert (method["training"]["lr"], method["training"]["rounds"]) == (0.02, 6)
    again = call("unlearn", small / "trained", *args, "--out", tmp_path / "run", "--resume", "--quiet")
    assert again.code == 0
    wrong = call("unlearn", small / "trained", "--set", "training.rate=1", "--out", tmp_path / "other")
    assert wrong.code == 2
    assert "option 'training': method 'fedavg' has no option 'rate'" in wrong.err


def test_a_preset_inherits_the_files_options(call: Call, small: Path, tmp_path: Path) -> None:
    args = ("--method", "fupareto:paper", "--set", "recovery_rounds=1")
    assert call("unlearn", small / "trained", *args, "--out", tmp_path / "run", "-q").code == 0
    method = tomllib.loads((tmp_path / "run/config.toml").read_text())["method"]
    stored = tomllib.loads((small / "small.toml").read_text())["unlearn"]["options"]
    assert method["name"] == "fupareto:paper"
    assert method["armijo"] == "printed"
    assert method["rounds"] == stored["rounds"]
    assert method["recovery_rounds"] == 1


def test_another_method_does_not_inherit_the_files_options(call: Call, small: Path, tmp_path: Path) -> None:
    """FedAvg on those who stay: it knows nothing of the file's options, and ends with the unlearned model."""
    args = ("--method", "fedavg", "--set", "rounds=2")
    ended = call("unlearn", small / "trained", *args, "--out", tmp_path / "run", "-q", "--json")
    assert ended.code == 0
    summary = json.loads(ended.out)
    assert list(summary["stages"]) == ["initial", "unlearned"]
    assert summary["stages"]["initial"]["distance"] == 0.0 < summary["stages"]["unlearned"]["distance"]
    assert summary["final"] == "unlearned"
    assert (tmp_path / "run/initial.safetensors").read_bytes() == (small / "trained/initial.safetensors").read_bytes()


def test_other_seed(call: Call, small: Path, tmp_path: Path) -> None:
    ended = call("train", small / "small.toml", "--seed", "7", "--out", tmp_path / "run", "--json", "-q")
    assert ended.code == 0
    assert json.loads(ended.out)["seed"] == 7
    assert (tmp_path / "run/initial.safetensors").read_bytes() != (small / "trained/initial.safetensors").read_bytes()


def test_finished_runs_are_not_touched_by_resume(call: Call, small: Path, tmp_path: Path) -> None:
    for name in ("trained", "forgotten"):
        shutil.copytree(small / name, tmp_path / name)
    before = files(tmp_path)
    assert call("train", small / "small.toml", "--out", tmp_path / "trained", "--resume").code == 0
    assert call("unlearn", tmp_path / "trained", "--out", tmp_path / "forgotten", "--resume").code == 0
    after = files(tmp_path)
    different = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert different <= {"trained/report.html", "forgotten/report.html"}


def test_data_list(call: Call, tmp_path: Path) -> None:
    ended = call("data", "list", "--data", tmp_path)
    assert ended.code == 0
    lines = ended.out.splitlines()
    found = {line.split()[0]: where.strip() for line, where in zip(lines[::2], lines[1::2], strict=True)}
    embedded = dict.fromkeys(("digits", "breast-cancer", "diabetes", "stdlib"), "embedded")
    assert found == {**embedded, **dict.fromkeys(("fashion-mnist", "cifar10", "cifar100", "gtsrb"), "missing")}


def test_own_model_and_samples(small: Path, tmp_path: Path) -> None:
    """A user's .npz beside the experiment file, and a user's model on PYTHONPATH, through the installed script."""
    import numpy as np

    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    np.savez(tmp_path / "table.npz", x=(rng.normal(size=(120, 4)) + y[:, None]).astype(np.float32), y=y)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef net(shape, classes):\n    return nn.Linear(shape[0], classes)\n"
    )
    (tmp_path / "own.toml").write_text(
        'model = "mine:net"\ndata.source = "table.npz"\nbackdoor.enabled = false\ntrain.rounds = 3\n'
        'partition = { kind = "iid", clients = 4 }\nrequest.clients = ["1"]\n'
    )
    ended = fupareto("train", tmp_path / "own.toml", "--out", "run", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert ended.code == 0, ended.err
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["forget"] == ["1"]
    assert summary["stages"]["initial"]["asr"] is None
    assert summary["stages"]["initial"]["r_acc"] > 0.4


def test_the_built_in_experiment_needs_no_file_and_any_key_can_be_set(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = ("train.rounds=2", "data.samples=200", "partition.kind=iid", 'request.clients=["1"]')
    ended = call("train", "demo", *(word for change in changes for word in ("--set", change)), "--out", "run")
    assert ended.code == 0, ended.err
    stored = tomllib.loads((tmp_path / "run/config.toml").read_text())["experiment"]
    assert (stored["train"]["rounds"], stored["data"]["samples"]) == (2, 200)
    assert (stored["partition"]["kind"], stored["request"]["clients"]) == ("iid", ["1"])
    assert len((tmp_path / "run/rounds.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("train.round=2", "did you mean 'rounds'"),
        ("train.rounds=many", "train.rounds = 'many'"),
        ("train=3", "train = 3"),
        ("rounds", "--set takes key=value"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(call: Call, tmp_path: Path, change: str, says: str) -> None:
    ended = call("train", "demo", "--set", change, "--out", tmp_path / "run")
    assert (ended.code, says in ended.err) == (2, True), ended.err
    assert not (tmp_path / "run").exists()


def test_init_writes_the_built_in_experiment_and_overwrites_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("init", "mine.toml").code == 0
    assert config.load(tmp_path / "mine.toml") == config.Experiment()
    (tmp_path / "mine.toml").write_text("seed = 4")
    ended = call("init", "mine.toml")
    assert (ended.code, "already exists" in ended.err) == (2, True)
    assert (tmp_path / "mine.toml").read_text() == "seed = 4"
    assert call("init", "no/where.toml").code == 2
