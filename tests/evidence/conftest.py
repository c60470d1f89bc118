"""Small runs, made once through the Python interface: three requests to one federation."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fupareto
from fupareto.evidence import FAILED, Finding, certify, verify
from fupareto.run.directory import Run
from manifests import relist
from presets import guard

METHOD = guard(rounds=2, recovery_rounds=2, lr=0.1)
AUDIT: dict[str, Any] = {
    "format": 2,
    "created": "2026-01-01T00:00:00+00:00",
    "seed": 0,
    "tier": 1,
    "stages": ["initial", "unlearned", "recovered"],
    "membership": {"recovered": {"mean": {"confidence": {"auc": 0.53, "low": 0.49, "high": 0.57}}}},
    "told_apart": None,
    "truth": {"rounds": 200, "seconds": 12.0, "stages": {"recovered": {"asr": None, "forget_acc": 0.02}}},
    "relearning": {"rounds": 20, "models": {"recovered": {"mean": 0.4, "curve": [0.1, 0.4]}}},
    "verdict": {"checks": [{"name": "forgotten", "result": "shown", "value": 0.004}], "text": "Forgotten: ü."},
}


def model(wide: int = 8) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, wide), nn.ReLU(), nn.Linear(wide, 3))


def federation(*names: str, wide: int = 8) -> fupareto.Federation:
    def samples(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(count) % 3
        return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed)) + y[:, None], y

    clients = {name: (samples(ord(name), 30), samples(99 + ord(name), 12)) for name in names}
    return fupareto.simulate(model(wide), clients, workers=1)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs in one directory: ``first`` and ``other`` from one model, ``second`` from the model that ``first`` kept."""
    place = tmp_path_factory.mktemp("made")
    everybody = federation(*"abcd")
    first = fupareto.unlearn(everybody, model(), ["a"], METHOD, out=place / "first")
    start = everybody.layout.flat(first.model())
    fupareto.unlearn(federation(*"bcd"), start, ["b"], METHOD, out=place / "second")
    fupareto.unlearn(everybody, model(), ["c"], METHOD, out=place / "other")
    Run(place / "first")._write({"audit.json": json.dumps(AUDIT, indent=2).encode()})
    return place


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A copy of the runs that a test may change."""
    return shutil.copytree(made, tmp_path / "runs")


@pytest.fixture
def run(runs: Path) -> Path:
    """One run, with its certificate."""
    certify(runs / "first")
    return runs / "first"


def failed(findings: list[Finding]) -> dict[str, str]:
    """Return what failed, and what is said of it."""
    return {f.about: f.text for f in findings if f.level == FAILED}


def failures(certificate: Path, *args: Any, **options: Any) -> dict[str, str]:
    """Verify, and return what failed."""
    return failed(verify(certificate, *args, **options))


def rewrite(path: Path, **changes: Any) -> dict[str, Any]:
    """Change keys of a JSON file, leaving its form alone."""
    value = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    relist(path.parent)
    return value
