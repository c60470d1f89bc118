"""The examples run as they are."""

import importlib
import runpy
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
def test_an_example_forgets_the_mark(name: str, low: float, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "mark works" in line]
    rates = {words[0]: float(words[3]) for words in lines}
    assert rates["initial"] > 0.3
    assert rates["unlearned"] < low


def test_the_language_model_forgets_the_canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    language_model = importlib.import_module("language_model")

    monkeypatch.setattr(language_model, "WINDOWS", 16)
    table = language_model.run(rounds=22)
    assert list(table) == ["before", "renewal", "FUPareto", "retrained"]
    known = {name: row["bytes of canaries predicted"] for name, row in table.items()}
    assert known["before"] > known["retrained"] + 0.3
    for name in ("renewal", "FUPareto"):
        assert known[name] < known["retrained"] + 0.1
