"""The examples run as they are."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    (
        "name",
        "low",
    ),  # of four classes a wrong answer hits the mark's in a fifth of all tries, with a retrained model too
    [("text_classification", 0.25), ("one_logit", 0.2), ("regression", 0.2)],
)
def test_an_example_forgets_the_mark(name: str, low: float) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    rates = {line.split()[0]: float(line.split()[3]) for line in done.stdout.splitlines() if "mark works" in line}
    assert rates["initial"] > 0.3
    assert rates["unlearned"] < low


def test_the_language_model_forgets_the_canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    language_model = importlib.import_module("language_model")

    monkeypatch.setattr(language_model, "WINDOWS", 24)
    table = language_model.run(rounds=25)
    assert list(table) == ["before", "renewal", "FUPareto", "retrained"]
    known = {name: row["bytes of canaries predicted"] for name, row in table.items()}
    assert known["before"] > known["retrained"] + 0.1
    assert known["renewal"] < known["before"]
