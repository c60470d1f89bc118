"""Every mistake of a user: exit code 2, a message that says what, where and how to mend it, and no file touched."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fupareto.methods.base import State
from fupareto.run.directory import Run
from manifests import relist

from .commands import EXPERIMENT, files, fupareto

Mistake = Callable[..., str]
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def write(text: str, name: str = "experiment.toml") -> str:
    Path(name).write_text(text)
    return name


def npz(**arrays: object) -> str:
    """Write samples as an .npz file and an experiment that names it."""
    values = {"x": np.random.default_rng(0).random((60, 1, 8, 8), np.float32), "y": np.arange(60) % 3, **arrays}
    np.savez("samples.npz", x=np.asarray(values["x"]), y=np.asarray(values["y"]))
    return write('data.source = "samples.npz"\npartition.kind = "iid"\npartition.clients = 3\nrequest.clients = 1\n')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sed = 1", ("experiment.toml", "sed: unknown key")),
        ("[trian]\nrounds = 3", ("experiment.toml", "trian: unknown key")),
        ("[train]\nround = 3", ("train.round: unknown key",)),
        ("[train]\nrounds = '3'", ("train.rounds = '3'", "integer")),
        ("[train]\nrounds = 2.5", ("train.rounds = 2.5", "integer")),
        ("[train]\nrounds = 0", ("train.rounds = 0", "greater than 0")),
        ("[train]\nlr = nan", ("train.lr = nan",)),
        ("[train]\nlr = inf", ("train.lr = inf", "finite")),
        ("seed = true", ("seed = True", "integer")),
        ("seed = -1", ("seed = -1", "greater than or equal to 0")),
        ("train = 3", ("train = 3",)),
        ("[partition]\nkind = 'dirichlett'", ("partition.kind = 'dirichlett'", "'dirichlet', 'pat', 'iid' or 'given'")),
        ("seed = 1\nseed = 2", ("experiment.toml is not valid TOML", "overwrite")),
        ("[train\nrounds = 3", ("experiment.toml is not valid TOML", "line 1")),
        ("request.clients = []", ("request.clients", "names no client")),
        ("request.clients = 0", ("request.clients", "names no client")),
        ("request.clients = 10", ("forgets 10 of 10 clients", "at least one must be retained")),
        ("request.clients = ['3', '12']", ("no client '12'", "0, 1, 2")),
        ("request.clients = 'three'", ("request.clients = 'three'",)),
        ("data.source = 'emnist'", ("unknown data 'emnist'", "digits, fashion-mnist")),
        ("data.source = 'no.npz'", ("no.npz",)),
        ("data.samples = 5000", ("5000", "1797")),
        ("model = 'lenet6'", ("unknown model 'lenet6'", "lenet5")),
        ("model = 'lenet5'", ("lenet5", "28x28", "(1, 8, 8)")),
        ("model = 'no_such_module:build'", ("no_such_module:build", "could not be imported")),
        ("partition = {kind = 'iid', clients = 900}", ("client 897", "too little data (1 sample)", "fewer clients")),
        ("partition = {kind = 'iid', clients = 2000}", ("without data", "fewer clients")),
        ("partition = {clients = 500}", ("500 clients", "at most")),
    ],
)
def test_experiment_file(mistake: Mistake, text: str, says: tuple[str, ...]) -> None:
    mistake("train", write(text), "--out", "run", says=says)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("sed = 1", "seed"),
        ("[trian]\nrounds = 3", "train"),
        ("[train]\nround = 3", "rounds"),
        ("[train]\nrecord = ['federasr']", "federaser"),
        ("[partition]\nkind = 'dirichlett'", "dirichlet"),
        ("data.source = 'fashion-mnits'", "fashion-mnist"),
        ("data.source = 'CIFAR10'", "cifar10"),
        ("model = 'lenet6'", "lenet5"),
        ("unlearn.method = 'fuparetto'", "fupareto"),
        ("unlearn.method = 'fupareto:papers'", "fupareto:paper"),
    ],
)
def test_misspelt_names_get_a_hint(mistake: Mistake, text: str, near: str) -> None:
    mistake("train", write(text), "--out", "run", says=(f"did you mean '{near}'?",))


def test_misspelt_commands_and_downloads_get_a_hint(mistake: Mistake) -> None:
    mistake("trian", says=("Did you mean 'train'?",))
    mistake("data", "get", "cifar-10", says=("did you mean 'cifar10'?",))


def test_files_for_another_command(mistake: Mistake) -> None:
    shutil.copy(EXPERIMENTS / "table1-fmnist.toml", "table1-fmnist.toml")
    shutil.copy(EXPERIMENTS / "demo.toml", "demo.toml")
    said = ("table1-fmnist.toml is a bench file", "fupareto bench table1-fmnist.toml")
    mistake("train", "table1-fmnist.toml", "--out", "run", says=said)
    mistake("bench", "demo.toml", says=("demo.toml is an experiment file", "fupareto train demo.toml --out"))


def test_every_wrong_key_is_named_at_once(mistake: Mistake) -> None:
    mistake("train", write("sed = 1\n[train]\nlr = 'x'"), "--out", "run", says=("sed: unknown", "train.lr = 'x'"))


def test_experiment_file_that_is_not_there(mistake: Mistake) -> None:
    mistake("train", "nothing.toml", "--out", "run", says=("no experiment file nothing.toml",))
    mistake("train", ".", "--out", "run", says=("cannot read .", "directory"))
    Path("bytes.toml").write_bytes(b"\xff\xfe")
    mistake("train", "bytes.toml", "--out", "run", says=("bytes.toml is not valid TOML",))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"y": np.arange(60) - 1}, ("samples.npz", "label -1 is negative")),
        ({"y": np.arange(60) % 3 + 0.5}, ("samples.npz", "integers")),
        ({"y": np.arange(59)}, ("samples.npz", "59")),
        ({"x": np.full((60, 1, 8, 8), np.nan, np.float32)}, ("samples.npz", "NaN")),
        ({"x": np.full((60, 1, 8, 8), np.inf, np.float32)}, ("samples.npz", "infinite")),
        ({"x": np.zeros((0, 1, 8, 8), np.float32), "y": np.zeros(0, int)}, ("samples.npz", "no samples")),
    ],
)
def test_own_samples(mistake: Mistake, arrays: dict[str, object], says: tuple[str, ...]) -> None:
    mistake("train", npz(**arrays), "--out", "run", says=says)


MODELS = """
from torch import nn
def narrow(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(64, classes - 1))
def wide(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(64, classes + 1))
def other_input(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(63, classes))
def not_a_model(shape, classes): return 3
"""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("narrow", ("outputs have shape (2, 9)", "10 classes", "(batch, 10)")),
        ("wide", ("outputs have shape (2, 11)", "10 classes")),
        ("other_input", ("cannot take samples of shape (1, 8, 8)",)),
        ("not_a_model", ("returned int, not a torch.nn.Module",)),
        ("missing", ("own_models:missing", "could not be imported")),
    ],
)
def test_own_model(mistake: Mistake, monkeypatch: pytest.MonkeyPatch, function: str, says: tuple[str, ...]) -> None:
    write(MODELS, "own_models.py")
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    mistake("train", write(f'model = "own_models:{function}"'), "--out", "run", says=says)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--clients", "3,9"), ("no client '9'", "0, 1, 2, 3, 4")),
        (("--clients", "0,1,2,3,4"), ("forgets everything", "leave at least one client out")),
        (("--clients", ""), ("names no client", "0, 1, 2, 3, 4")),
        (("--clients", " , "), ("names no client",)),
        (("--method", "fuparetto"), ("unknown method 'fuparetto'", "fupareto, renew, retrain", "fedavg")),
        (("--method", "fupareto:papers"), ("no preset 'papers'", "fupareto:paper")),
        (("--method", "fedavg:paper"), ("no preset 'paper'", "none")),
        (("--method", "json:JSONDecoder"), ("json:JSONDecoder", "not a subclass")),
        (("--method", "no_such_module:Method"), ("no_such_module:Method", "could not be imported")),
        (("--set", "roundz=3"), ("no option 'roundz'", "did you mean 'rounds'?")),
        (("--set", "zzz=3"), ("no option 'zzz'", "it has renewal, renewal_remains, renewal_momentum")),
        (("--set", "lr=fast"), ("lr must be a finite number, not 'fast'",)),
        (("--set", "lr=true"), ("lr must be a finite number, not True",)),
        (("--set", "lr=nan"), ("lr must be",)),
        (("--set", "lr=inf"), ("lr must be a finite number",)),
        (("--set", "lr=-1"), ("lr must be above 0, not -1",)),
        (("--set", "rounds=2.5"), ("rounds must be a whole number, not 2.5",)),
        (("--set", "delta=nan"), ("delta must be",)),
        (("--set", "beta=2"), ("beta must lie between 0 and 1",)),
        (("--set", "loss=bce"), ("loss must be one of 'mbs', 'uce', 'kl', 'reverse-kl', not 'bce'",)),
        (("--set", "recovery_lr=no"), ("recovery_lr must be a finite number or left out",)),
        (("--set", "rounds"), ("--set takes key=value, not 'rounds'",)),
        (("--set", "=3"), ("--set takes key=value",)),
        (("--set", "rounds=3", "--set", "rounds=4"), ("--set sets rounds twice",)),
        (("--set", "training.lr=0.1", "--set", "training=1"), ("--set sets both 'training' and a key within it",)),
        (("--resume", "--seed", "3"), ("No such option",)),
    ],
)
def test_request_and_method(mistake: Mistake, small: Path, args: tuple[str, ...], says: tuple[str, ...]) -> None:
    before = files(small)
    mistake("unlearn", small / "trained", "--out", "run", *args, says=says)
    assert files(small) == before


def test_method_of_the_experiment_file_is_checked_before_training(mistake: Mistake) -> None:
    mistake("train", write('unlearn.method = "fuparetto"'), "--out", "run", says=("unknown method 'fuparetto'",))
    text = "unlearn.options = { roundz = 3 }"
    mistake("train", write(text), "--out", "run", says=("no option 'roundz'", "did you mean 'rounds'?"))


def test_seed(mistake: Mistake) -> None:
    mistake("demo", "--seed", "-1", "--out", "run", says=("--seed", "greater than or equal to 0"))
    mistake("demo", "--seed", "one", "--out", "run", says=("--seed", "integer"))
    mistake("train", write(EXPERIMENT), "--seed", "-1", "--out", "run", says=("--seed", "greater than or equal to 0"))


@pytest.mark.parametrize("command", ["unlearn", "audit", "report", "compare"])
def test_not_a_run_directory(mistake: Mistake, small: Path, command: str) -> None:
    out = ("--out", "run") if command == "unlearn" else ()
    mistake(command, "nothing", *out, says=("no run directory nothing",))
    Path("folder").mkdir()
    write("mine", "folder/diary.txt")
    mistake(command, "folder", *out, says=("folder is not a run directory", "no config.toml"))
    write("file", "file")
    mistake(command, "file/x", *out, says=("no run directory file/x",))
    shutil.copytree(small / "trained", "later")
    text = Path("later/config.toml").read_text()
    write(text.replace("format = 2", "format = 99"), "later/config.toml")
    mistake(command, "later", *out, says=("later", "format 99", "reads format 2", "the version that wrote it"))
    write("[unfinished", "later/config.toml")
    mistake(command, "later", *out, says=("later/config.toml is damaged", "Expected ']'"))
    write("format = 2", "later/config.toml")
    relist("later")
    if command == "unlearn":
        mistake(command, "later", *out, says=("later/config.toml is damaged", "[experiment] is missing"))


@pytest.mark.parametrize("command", ["unlearn", "audit", "report", "compare"])
def test_unfinished_run(mistake: Mistake, small: Path, command: str) -> None:
    shutil.copytree(small / "trained", "half")
    Path("half/summary.json").unlink()
    relist("half")
    out = ("--out", "run") if command == "unlearn" else ()
    says = {"unlearn": ("half is not finished", "--resume"), "audit": ("half", "--resume")}
    mistake(command, "half", *out, says=says.get(command, ("half has no summary.json", "is the run finished?")))


def test_a_second_request_has_to_say_who(mistake: Mistake, small: Path) -> None:
    run = small / "forgotten"
    mistake("unlearn", run, "--out", "run", says=("has already answered a request", "--clients"))
    gone = json.loads((run / "request.json").read_text())["clients"][0]
    mistake("unlearn", run, "--clients", gone, "--out", "run", says=(f"no client '{gone}' in the federation",))


def test_out_that_exists(mistake: Mistake, small: Path) -> None:
    shutil.copytree(small / "trained", "trained")
    write(EXPERIMENT)
    mistake("train", "experiment.toml", "--out", "trained", says=("trained already exists", "--resume", "--out"))
    mistake("unlearn", "trained", "--out", "trained", says=("trained already exists",))
    Path("mine").mkdir()
    write("dear diary", "mine/diary.txt")
    shutil.copytree(small / "forgotten", "forgotten")
    for resume in ((), ("--resume",)):
        mistake("demo", "--out", "forgotten", *resume, says=("forgotten already exists",))
        mistake("train", "experiment.toml", "--out", "mine", *resume, says=("mine already exists",))
        mistake("demo", "--out", "mine", *resume, says=("mine already exists",))
    write("a file", "file")
    mistake("train", "experiment.toml", "--out", "file", says=("file already exists",))
    mistake(
        "train", "experiment.toml", "--out", "file/x", says=("cannot create the directory file/x", "Not a directory")
    )
    mistake("demo", "--out", "file/x", says=("cannot create the directory file/x",))


def test_resume_with_other_settings(mistake: Mistake, small: Path) -> None:
    shutil.copytree(small / "trained", "trained")
    shutil.copytree(small / "forgotten", "forgotten")
    write(EXPERIMENT.replace("rounds = 6\n", "rounds = 7\n"))
    resumed = ("cannot resume trained: its settings do not match", "another experiment", "config.toml", "another --out")
    mistake("train", "experiment.toml", "--out", "trained", "--resume", says=resumed)
    write(EXPERIMENT)
    mistake("train", "experiment.toml", "--seed", "5", "--out", "trained", "--resume", says=resumed)
    for args, other in ((("--set", "lr=0.1"), "method"), (("--clients", "0"), "request"), (("--method", "fedavg"), "")):
        says = ("cannot resume forgotten: its settings do not match", other)
        mistake("unlearn", "trained", "--out", "forgotten", *args, "--resume", says=says)
    mistake("train", "experiment.toml", "--out", "forgotten", "--resume", says=("do not match", "kind"))
    Path("forgotten/summary.json").unlink()
    relist("forgotten")
    mistake("unlearn", "trained", "--out", "forgotten", "--set", "s=2", "--resume", says=("another method",))


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, 0.3, 0.9, -1])
def test_truncated_checkpoint(mistake: Mistake, small: Path, keep: float) -> None:
    shutil.copytree(small / "trained", "trained")
    Path("trained/summary.json").unlink()
    Run(relist("trained")).save_state(State(w=torch.ones(9), forget=(), retained=(), round=6))
    checkpoint = Path("trained/checkpoint/state.safetensors")
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    says = ("trained/checkpoint/state.safetensors is damaged", "not affected", "another --out")
    mistake("train", small / "small.toml", "--out", "trained", "--resume", says=says)


def test_damaged_model(mistake: Mistake, small: Path) -> None:
    shutil.copytree(small / "trained", "trained")
    shutil.copytree(small / "forgotten", "forgotten")
    for name in ("trained/initial.safetensors", "forgotten/recovered.safetensors"):
        Path(name).write_bytes(Path(name).read_bytes()[:-100])
    mistake("unlearn", "trained", "--out", "run", says=("trained/initial.safetensors is damaged",))
    mistake("audit", "forgotten", says=("forgotten/recovered.safetensors is damaged",))
    mistake("audit", "trained", says=("trained/initial.safetensors is damaged",))
    Path("trained/initial.safetensors").unlink()
    mistake("unlearn", "trained", "--out", "run", says=("trained", "initial"))
    mistake("audit", "trained", says=("initial.safetensors is missing", "manifest.json"))


@pytest.mark.parametrize("command", ["audit", "report", "compare"])
@pytest.mark.parametrize("text", ['{"format": 1,', "[]", "3", "{}", ""])
def test_damaged_summary(mistake: Mistake, small: Path, command: str, text: str) -> None:
    shutil.copytree(small / "forgotten", "forgotten")
    write(text, "forgotten/summary.json")
    mistake(command, "forgotten", says=("forgotten/summary.json is damaged",))


@pytest.mark.parametrize("line", ["{", "[]", "{}", "\xff"])
def test_damaged_rounds(mistake: Mistake, small: Path, line: str) -> None:
    shutil.copytree(small / "forgotten", "forgotten")
    lines = Path("forgotten/rounds.jsonl").read_text().splitlines()
    Path("forgotten/rounds.jsonl").write_text("\n".join([*lines[:3], line, *lines[3:]]) + "\n", encoding="latin-1")
    mistake("report", "forgotten", says=("forgotten/rounds.jsonl is damaged", "SHA-256"))
    relist("forgotten")
    for command in ("report", "audit"):
        mistake(command, "forgotten", says=("forgotten/rounds.jsonl is damaged", "line 4"))
    mistake("compare", "forgotten", "--out", "page.html", "--json", says=("forgotten/rounds.jsonl is damaged",))
    Path("forgotten/summary.json").unlink()
    relist("forgotten")
    again = ("unlearn", small / "trained", "--out", "forgotten", "--resume")
    mistake(*again, says=("forgotten/rounds.jsonl is damaged", "line 4"))


def test_damaged_request(mistake: Mistake, small: Path) -> None:
    shutil.copytree(small / "forgotten", "forgotten")
    write("{}", "forgotten/request.json")
    relist("forgotten")
    mistake("audit", "forgotten", says=("forgotten/request.json is damaged",))
    Path("forgotten/request.json").unlink()
    relist("forgotten")
    mistake("audit", "forgotten", says=("forgotten has no request.json",))
    mistake("unlearn", small / "trained", "--out", "forgotten", "--resume", says=("forgotten has no request.json",))


def test_comparison_that_cannot_be_written(mistake: Mistake, small: Path) -> None:
    write("a file", "file")
    both = (small / "trained", small / "forgotten")
    mistake("compare", *both, "--out", "file/page.html", "--json", says=("cannot write file/page.html", "Not a"))


def test_data(mistake: Mistake, tmp_path: Path) -> None:
    mistake("data", "get", "emnist", says=("emnist", "fashion-mnist, cifar10, cifar100, gtsrb"))
    write('data.source = "cifar10"\nmodel = "cnn"')
    says = (f"{tmp_path}/sets/cifar10/cifar-10-batches-bin/data_batch_1.bin", "Put the files there", "data get cifar10")
    mistake("train", "experiment.toml", "--data", tmp_path / "sets", "--out", "run", says=says)


@pytest.mark.parametrize("args", [("unlearn",), ("train", "x.toml"), ("frobnicate",), ("demo", "--fast"), ("compare",)])
def test_usage(mistake: Mistake, args: tuple[str, ...]) -> None:
    mistake(*args, says=("Usage:",))


def test_installed_script_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text("sed = 1\n")
    ended = fupareto("train", "experiment.toml", "--out", "run", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "Error: experiment.toml is not valid:\n  sed: unknown key; did you mean 'seed'?\n"
    assert list(files(tmp_path)) == ["experiment.toml"]


def test_installed_script_with_a_model_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "own_models.py").write_text(MODELS)
    (tmp_path / "experiment.toml").write_text('model = "own_models:narrow"')
    env = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = fupareto("train", "experiment.toml", "--out", "run", cwd=tmp_path, env=env)
    assert ended.code == 2
    assert "outputs have shape (2, 9)" in ended.err
    assert "Traceback" not in ended.err
    assert list(files(tmp_path)) == ["experiment.toml", "own_models.py"]
