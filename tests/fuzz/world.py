"""What the cases change: a small experiment, a bench, samples, and the runs that were made of them."""

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from data import files

EXPERIMENT: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "model": "mlp",
    "data": {"source": "digits", "samples": 240},
    "partition": {"kind": "iid", "clients": 4, "alpha": 0.5, "classes_per_client": 2, "balance": True},
    "backdoor": {"enabled": True, "portion": 0.8, "asr_split": "train"},
    "train": {
        "rounds": 2, "lr": 0.3, "decay": 0.99, "epochs": 1, "batch_size": 20, "participation": 1.0,
        "record": ["federaser", "fupga", "fedau"], "keep": 2,
    },
    "request": {"clients": ["1"]},
    "unlearn": {"method": "fupareto", "options": {"lr": 0.05, "rounds": 2, "recovery_rounds": 1}},
}  # fmt: skip
BENCH: dict[str, Any] = {
    "name": "small",
    "title": "Small",
    "seeds": [0],
    "measure_every": 1,
    "experiment": {key: EXPERIMENT[key] for key in ("data", "partition", "request")} | {"train": {"rounds": 1}},
    "settings": [{"name": "one"}, {"name": "two", "experiment": {"partition": {"clients": 3}}}],
    "methods": [{"method": "retrain", "label": "Retrain", "options": {"rounds": 1}}],
    "scales": {"tiny": {"reduced": "everything", "settings": ["one"], "seeds": [1]}},
}
SHORT = ("--set", "rounds=2", "--set", "recovery_rounds=1")
FORGETTING = ("fupareto", "federaser", "fupga", "fedau")


@dataclass(frozen=True)
class World:
    """Directory with what the cases change.

    Attributes:
        path: The directory: experiment.toml, bench.toml, samples.npz, sets/, trained/ and one run per method.
    """

    path: Path

    @property
    def trained(self) -> Path:
        """Training run."""
        return self.path / "trained"

    def forgotten(self, method: str) -> Path:
        """Run of a method."""
        return self.path / method

    @property
    def bomb(self) -> Path:
        """An .npz file of 5 MB that unpacks to 1.2 GB, made when it is needed first."""
        path = self.path.parent / "bomb.npz"
        if not path.is_file():
            _write_bomb(path)
        return path

    @property
    def has_manifest(self) -> bool:
        """Whether runs list the hashes of their files, so that every change of a file is found."""
        return (self.trained / "manifest.json").is_file()


def make(path: Path, run: Callable[[list[str]], tuple[int, str]]) -> World:
    """Make the world; ``run`` runs a command to its end and returns its exit code and what it said."""
    (path / "experiment.toml").write_text(tomli_w.dumps(EXPERIMENT))
    (path / "bench.toml").write_text(tomli_w.dumps(BENCH))
    (path / "rows.json").write_text(json.dumps({"1": [0, 5], "2": [3]}))
    np.savez(path / "samples.npz", **samples())  # type: ignore[arg-type]
    files.fashion_mnist(path / "sets", train=60, test=20)
    world = World(path)
    commands = [["train", "experiment.toml", "--out", "trained"]]
    commands += [["unlearn", "trained", "--method", m, *SHORT, "--out", m] for m in FORGETTING]
    commands += [["certify", FORGETTING[0]]]
    here = Path.cwd()
    os.chdir(path)
    try:
        for command in commands:
            code, said = run(command)
            assert code == 0, f"{command}: {said}"
    finally:
        os.chdir(here)
    return world


def samples() -> dict[str, np.ndarray[Any, Any]]:
    """Return samples as an .npz file has them."""
    random = np.random.default_rng(0)
    return {"x": random.random((80, 1, 6, 6), np.float32), "y": np.arange(80) % 4}


def _write_bomb(path: Path, rows: int = 40_000) -> None:
    """Write an archive of zeros without holding them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, 7500)})
            for _ in range(rows // 400):
                file.write(bytes(400 * 7500 * 4))
        with archive.open("y.npy", "w") as file:
            np.lib.format.write_array(file, np.zeros(rows, np.int64))
