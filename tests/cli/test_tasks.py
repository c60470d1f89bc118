"""Tasks other than classes, from a table to the certificate."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Call

LOSS = """
import torch

def pinball(outputs, targets):
    error = targets - outputs
    return torch.maximum(0.6 * error, -0.4 * error)
"""
TRUSTED = ("--quiet", "--trust-code")
EXPERIMENT = """
task = { name = "numbers", criterion = "own_loss:pinball" }
data = { source = "houses.csv", target = "price", client = "town" }
partition = { kind = "given", clients = 4 }
train = { rounds = 12, lr = 0.02, optimizer = "adam" }
request.clients = ["2"]
unlearn.options = { rounds = 2 }
"""


def write(place: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(160, 3))
    rows = [f"{a},{b},{c},{['aldo', 'bert', 'cuno', 'dora'][k % 4]},{a - b}" for k, (a, b, c) in enumerate(x)]
    (place / "houses.csv").write_text("\n".join(["size,age,height,town,price", *rows]))
    (place / "own_loss.py").write_text(LOSS)
    (place / "own.toml").write_text(EXPERIMENT)


def test_a_regression_is_trained_forgotten_audited_certified_and_verified(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    told = call("train", "own.toml", "--out", "a", "--quiet")
    assert told.code == 0, told.err
    assert "--trust-code" in call("unlearn", "a", "--out", "b", "--quiet").err
    told = call("unlearn", "a", "--out", "b", *TRUSTED)
    assert told.code == 0, told.err
    for word in ("Task numbers", "mean absolute error", "R²", "retained"):
        assert word in told.out
    assert "audit.truth" not in (tmp_path / "b/report.html").read_text()
    assert call("audit", "b", "--retrain", *TRUSTED).code == 0
    summary = json.loads((tmp_path / "b/summary.json").read_text())
    assert summary["task"]["criterion"] == "own_loss:pinball"
    assert 'data-key="audit.truth.retrained.measures.retained.mae"' in (tmp_path / "b/report.html").read_text()
    assert call("certify", "b").code == 0
    told = call("verify", "b", "--audit", "--json", *TRUSTED)
    assert told.code == 0, told.out
    found: list[dict[str, Any]] = json.loads(told.out)["findings"]
    exact = [f["text"] for f in found if "came out exactly as certified" in f["text"]]
    assert len(exact) == 2, exact  # of the summary, and of the audit
    assert not [f for f in found if f["level"] == "FAILED"]
