"""Input that exceeds a limit: exit code 2, a sentence that names it, and no file touched."""

import json
import os
import pty
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from fupareto import seal
from manifests import relist

from .commands import EXPERIMENT, SCRIPT

Mistake = Callable[..., str]


def train(mistake: Mistake, text: str, *says: str, args: tuple[str, ...] = ()) -> None:
    Path("experiment.toml").write_text(text)
    mistake("train", "experiment.toml", "--out", "run", *args, says=says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a." * 5000 + "a = 1", "nested too deeply"),
        ("partition.clients = 9223372036854775807", "less than or equal to 100000"),
        ("seed = 9223372036854775808", "a number is too large"),
        ("train.lr = 1e308", "train.lr = 1e+308"),
        ("train.decay = 1e-300", "falls to 10^"),
        ("train.rounds = 1000000000", "falls to 10^"),
        ("train = {rounds = 1000000000, decay = 1.0}", "takes at least"),
        ("train.epochs = 1000000000", "takes at least"),
        ("data.source = '~no-such-user/x.npz'", "no such user"),
        ('data.source = "a\\u0000.npz"', "null character"),
        (f"data.source = '{'x' * 300}.npz'", "too long"),
        (f"name = '{'x' * 300}'", "at most 255 characters"),
        (f"request.clients = ['{'x' * 300}']", "at most 255 characters"),
        ("unlearn.options = {lr = 1e300}", "lr must not be above 1e+09"),
        ("unlearn.options = {rounds = 10000000000}", "rounds must not be above 1e+09"),
        ("unlearn.options = {rounds = 1, recovery_rounds = 20, decay = 1e-200}", "recovery_lr"),
    ],
)
def test_experiment_files(mistake: Mistake, text: str, says: str) -> None:
    train(mistake, text, says)


def test_many_mistakes_are_not_all_listed(mistake: Mistake) -> None:
    train(mistake, "\n".join(f"x{n} = 1" for n in range(500)), "x19: unknown key", "and 480 more")


def test_things_that_are_no_file(mistake: Mistake, small: Path) -> None:
    os.mkfifo("pipe")
    try:
        for args in ("train pipe", "train /dev/zero", f"unlearn {small / 'trained'} --samples pipe"):
            command = [str(SCRIPT), *args.split(), "--out", "run"]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert ended.returncode == 2
            assert "not a file but a pipe or a device" in ended.stderr
    finally:
        Path("pipe").unlink()
    mistake("train", "x" * 300, "--out", "run", says=("no experiment file",))
    mistake("train", "demo", "--out", "x" * 300, says=("File name too long",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (r'{"\ud800": [0]}', "lone surrogate"),
        ('{"1": [0], "1": [1]}', "'1' is there twice"),
        ('{"1": ' + "[" * 5000, "nested too deeply"),
        ('{"1": [1e0]}', "list of integers"),
        ('{"1": "05"}', "list of integers"),
        ('{"1": 5}', "list of integers"),
        (f'{{"1": [{10**30}]}}', "too large"),
        ('{"1": [NaN]}', "NaN"),
        (f'{{"{"x" * 300}": [0]}}', "at most 255"),
    ],
)
def test_request_files(mistake: Mistake, small: Path, text: str, says: str) -> None:
    Path("rows.json").write_text(text)
    mistake("unlearn", small / "trained", "--samples", "rows.json", "--out", "run", says=("rows.json", says))


def test_arguments_that_are_no_text(mistake: Mistake, small: Path) -> None:
    mistake("unlearn", small / "trained", "--clients", "\udcff", "--out", "run", says=("lone surrogate",))


def samples(**arrays: object) -> str:
    values = {"x": np.zeros((60, 1, 8, 8), np.float32), "y": np.arange(60) % 3, **arrays}
    np.savez_compressed("samples.npz", x=np.asarray(values["x"]), y=np.asarray(values["y"]))
    return 'data.source = "samples.npz"\npartition = {kind = "iid", clients = 3}\nrequest.clients = 1\n'


def test_labels(mistake: Mistake) -> None:
    for label in (10**6, 2**62, 65_536):
        train(mistake, samples(y=np.array([0] * 59 + [label])), f"label {label} is too large", "0, 1, 2")
    train(mistake, samples(y=np.array([0.0] * 59 + [np.inf])), "label inf is too large")


def test_archives(mistake: Mistake) -> None:
    settings = samples()
    with (
        zipfile.ZipFile("samples.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(1100):
            file.write(bytes(2**20))
    assert Path("samples.npz").stat().st_size < 2**23
    train(mistake, settings, "samples.npz", "unpacks to 1.2 GB", "decompression bomb")
    for content in (b"", b"PK\x05\x06" + bytes(18), b"PK\x03\x04" + bytes(40), os.urandom(500)):
        Path("samples.npz").write_bytes(content)
        train(mistake, settings, "samples.npz")


def test_weights_that_are_no_numbers(mistake: Mistake, small: Path) -> None:
    for run, name, command in (("trained", "initial", "unlearn"), ("forgotten", "recovered", "audit")):
        shutil.copytree(small / run, run)
        path = Path(run, f"{name}.safetensors")
        weights = safetensors.torch.load(path.read_bytes())
        next(iter(weights.values())).view(-1)[0] = torch.nan
        path.write_bytes(safetensors.torch.save(weights))
        relist(run)
        out = ("--out", "run") if command == "unlearn" else ()
        mistake(command, run, *out, says=("NaN or infinity",))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("clients", "01"),
        ("clients", [1]),
        ("rounds", -1),
        ("rounds", "6"),
        ("keep", 10**12),
        ("parts", ["x"]),
        ("new", 1),
    ],
)
def test_history_with_wrong_fields(mistake: Mistake, recorded: Path, key: str, value: object) -> None:
    shutil.copytree(recorded, "recorded")
    path = Path("recorded/history/index.json")
    path.write_bytes(seal.document({**seal.check_document(json.loads(path.read_text())), key: value}))
    says = ("history/index.json is damaged",)
    mistake("unlearn", "recorded", "--method", "federaser", "--out", "run", says=says)


def test_history_with_wrong_models(mistake: Mistake, recorded: Path) -> None:
    args = ("unlearn", "recorded", "--method", "fupga", "--clients", "1", "--out", "run")
    for tensors in (
        {"w": torch.full((4810,), torch.nan), "size": torch.tensor(3)},
        {"w": torch.zeros(3), "size": torch.tensor(3)},
        {"w": torch.zeros(4810), "size": torch.tensor(-3)},
        {"w": torch.zeros(4810), "size": torch.tensor([3, 3])},
        {"w": torch.zeros(4810, dtype=torch.int64), "size": torch.tensor(3)},
        {"v": torch.zeros(4810)},
    ):
        shutil.copytree(recorded, "recorded")
        Path("recorded/history/fupga/001.safetensors").write_bytes(safetensors.torch.save(tensors))
        mistake(*args, says=("history/fupga/001.safetensors", "damaged"))
        shutil.rmtree("recorded")


@pytest.fixture(scope="session")
def recorded(small: Path) -> Path:
    """A training run with a history."""
    args = ("train", "small.toml", "--record", "federaser,fupga", "--set", "train.rounds=2", "--out", "recorded", "-q")
    subprocess.run([SCRIPT, *args], cwd=small, check=True, capture_output=True)
    return small / "recorded"


def test_a_terminal_is_asked_before_a_long_run(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(EXPERIMENT.replace("rounds = 6", "rounds = 1000000000\ndecay = 1.0", 1))
    server, client = pty.openpty()
    command = [str(SCRIPT), "train", "long.toml", "--out", "run"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=client, stdout=client, stderr=client, close_fds=True)
    os.close(client)
    said = b""
    while b"Start it?" not in said:
        said += os.read(server, 1000)
    assert b"1,000,000,000 rounds takes at least" in said
    os.write(server, b"n\n")
    assert process.wait(60) == 2
    assert not (tmp_path / "run").exists()
    os.close(server)
