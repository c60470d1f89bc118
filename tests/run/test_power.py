"""Power is lost at any operation on the disk: the work is done again from what is left, and nothing is lost silently.

``make crash`` does this at every operation; here it is a sample of them.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fupareto
from fupareto import FedAvg, FUPareto, evidence
from fupareto.run.directory import Run

from .power import Disk

EVERY = int(os.environ.get("FUPARETO_CRASH_EVERY", "29"))  # operations between two points that are tried
SEEDS = int(os.environ.get("FUPARETO_CRASH_SEEDS", "1"))  # random remains at each point


def federation() -> fupareto.Federation:
    def samples(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(count) % 3
        return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed)) + y[:, None], y

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    return fupareto.simulate(model, {n: (samples(ord(n), 30), samples(99 + ord(n), 12)) for n in "abc"}, workers=1)


def work(root: Path) -> None:
    """Train with a history, unlearn, audit, report and certify; what is there already is continued."""
    clients = federation()
    training = FedAvg(rounds=2, batch_size=8)
    record = ["federaser", "fupga"]
    trained = fupareto.train(clients, clients.fresh(0), training, out=root / "training", resume=True, record=record)
    method = FUPareto(rounds=2, recovery_rounds=2, lr=0.1)
    result = fupareto.unlearn(clients, trained, ["b"], method, out=root / "run", resume=True)
    place = Run.open(root / "run")
    if place.audit is None:
        result.audit(dormancy=0)
    if not (root / "run/report.html").exists():
        place.save_report("a report")
    evidence.certify(root / "run")


def content(root: Path) -> dict[str, Any]:
    """Return what does not depend on time, after opening what there is."""
    found: dict[str, Any] = {str(p.relative_to(root)): None for p in sorted(root.rglob("*")) if p.name != ".lock"}
    found |= {name: (root / name).read_bytes() for name in found if name.endswith((".safetensors", "clients.json"))}
    for name in ("training", "run"):
        run = Run.open(root / name)
        found[f"{name} rounds"] = [{**r, "seconds": 0} for r in run.rounds()]
        found[f"{name} summary"] = {**run.summary, "created": "", "cost": {**run.summary["cost"], "seconds": 0}}
    found["audit"] = json.dumps({**(Run.open(root / "run").audit or {}), "created": ""})
    assert not [f for f in evidence.verify(root / "run/certificate.json") if f.level == evidence.FAILED]
    return found


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    root = tmp_path_factory.mktemp("disk")
    disk = Disk(root)
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        work(root)
    disk.points.append(disk.tree)  # and after the last
    return disk


def test_nothing_is_lost_silently(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = content(disk.root)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the real disk need not be waited for
    assert len(disk.points) >= 200
    tried = 0
    for point in [*range(0, len(disk.points), EVERY), len(disk.points) - 1]:
        for seed in (None, *range(SEEDS)):
            place = tmp_path / f"{point}-{seed}"
            disk.after(point, place, seed)
            work(place)
            found = content(place)
            assert found.keys() == expected.keys(), f"power lost before operation {point}, seed {seed}"
            for key, value in expected.items():
                assert found[key] == value, f"power lost before operation {point}, seed {seed}: {key}"
            shutil.rmtree(place)
            tried += 1
    print(f"{tried} losses of power at {len(disk.points)} operations: nothing lost")


def test_what_was_finished_is_there(disk: Disk, tmp_path: Path) -> None:
    """After the last command has ended, the power may go at once, and everything is there without any more work."""
    disk.after(len(disk.points) - 1, tmp_path / "after", None)
    assert content(tmp_path / "after") == content(disk.root)


def test_a_write_without_a_sync_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would prove nothing."""
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    with monkeypatch.context() as patch:
        disk.install(patch)
        for name in ("lost", "kept"):
            descriptor = os.open(tmp_path / "disk" / name, os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, b"content")
            if name == "kept":
                os.fsync(descriptor)
            os.close(descriptor)
        folder = os.open(tmp_path / "disk", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        os.unlink(tmp_path / "disk/kept")  # noqa: PTH108
    disk.points.append(disk.tree)
    disk.after(-1, tmp_path / "after", None)
    assert {p.name: p.read_bytes() for p in (tmp_path / "after").iterdir()} == {"lost": b"", "kept": b"content"}
