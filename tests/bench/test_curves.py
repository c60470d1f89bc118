"""Stored curves: shared models are trained on once, and results are those of an audit without a store."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fupareto.audit import relearning
from fupareto.bench import file
from fupareto.bench.curves import StoredCurves
from fupareto.bench.run import run
from fupareto.federation import SimulatedFederation
from fupareto.federation.questions import Answer, Failure, Question, Train
from manifests import relist

DORMANCY, CLIENTS = 3, 4
BENCH = f"""
name = "shared"
title = "Digits"
seeds = [3]
audit = {{ retrain = 1, dormancy = {DORMANCY} }}

[experiment]
data = {{ samples = 300 }}
partition = {{ kind = "iid", clients = {CLIENTS} }}
train = {{ rounds = 2 }}

[[settings]]
name = "one"
experiment = {{ request = {{ clients = 1 }} }}

[[methods]]
method = "finetune"
label = "A"
options = {{ rounds = 1 }}

[[methods]]
method = "finetune"
label = "B"
options = {{ rounds = 2 }}
"""
OF_ONE_MODEL = DORMANCY * (CLIENTS - 1) + relearning.ROUNDS  # training questions: retained clients, forget client


def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the training questions of the federation from now on."""
    counted: Counter[str] = Counter()
    inner = SimulatedFederation.ask

    def ask(self: Any, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        counted["train"] += sum(isinstance(question, Train) for question in questions.values())
        return inner(self, questions)

    monkeypatch.setattr(SimulatedFederation, "ask", ask)
    return counted


def audits(out: Path) -> dict[str, Any]:
    found = {path.parent.name: json.loads(path.read_text()) for path in out.rglob("audit.json")}
    return {name: {**audit, "created": None} for name, audit in found.items()}


def test_shared_models_are_trained_on_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench.toml").write_text(BENCH)
    made = file.load(tmp_path / "bench.toml")
    out = tmp_path / "out"
    run(made, out)
    first = audits(out)
    assert set(first) == {"a", "b"}
    assert all(len(one["dormancy"]["models"]) == len(one["relearning"]["models"]) == 3 for one in first.values())
    curves = out / "one/seed-3/curves"
    assert len(list(curves.iterdir())) == 2 * 4  # of w0, the retrained model and the two kept ones

    def again(*removed: Path) -> int:
        for path in [*out.rglob("audit.json"), *removed]:
            path.unlink()
        for place in {path.parent for path in out.rglob("manifest.json")}:
            relist(place)
        with monkeypatch.context() as patch:
            counted = asked(patch)
            run(made, out)
        assert audits(out) == first
        return counted["train"]

    assert again() == 0
    assert again(*curves.iterdir()) == 4 * OF_ONE_MODEL  # 6 without the store: three models in each of two audits
    damaged = next(curves.glob("relearning-*"))
    damaged.write_text(damaged.read_text()[:100])
    assert again() == relearning.ROUNDS

    monkeypatch.setattr(StoredCurves, "__call__", lambda self, key, measure: measure())
    assert again() == 6 * OF_ONE_MODEL


def test_another_key_is_measured_and_an_unmeasured_round_is_not_stored(tmp_path: Path) -> None:
    curves, key = StoredCurves(tmp_path / "curves"), {"curve": "dormancy", "rounds": 1}
    assert curves(key, lambda: {"curve": [0.1, 1 / 3]}) == {"curve": [0.1, 1 / 3]}
    assert curves(key, lambda: pytest.fail("measured again")) == {"curve": [0.1, 1 / 3]}
    other = {**key, "rounds": 2}
    assert curves(other, lambda: {"curve": [0.5, None]}) == {"curve": [0.5, None]}
    assert curves(other, lambda: {"curve": [0.5, 0.5]}) == {"curve": [0.5, 0.5]}
    stored = {path.name: path.read_text() for path in (tmp_path / "curves").iterdir()}
    assert len(stored) == 2
    for path in (tmp_path / "curves").iterdir():  # under the name of another key
        path.write_text(next(text for name, text in stored.items() if name != path.name))
    assert curves(key, lambda: {"curve": [0.9]}) == {"curve": [0.9]}


def test_a_cell_that_was_audited_without_further_training_is_audited_again(tmp_path: Path) -> None:
    def audited(asked: str) -> set[int]:
        text = BENCH.replace(f"audit = {{ retrain = 1, dormancy = {DORMANCY} }}", f"audit = {{ {asked} }}")
        (tmp_path / "bench.toml").write_text(text)
        run(file.load(tmp_path / "bench.toml"), tmp_path / "out")
        return {(audit["dormancy"] or {}).get("rounds", 0) for audit in audits(tmp_path / "out").values()}

    assert audited("dormancy = 0") == {0}
    assert audited("") == {40}
