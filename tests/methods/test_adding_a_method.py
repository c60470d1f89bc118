"""docs/adding-a-method.md is true: its code and its commands are run as they stand there."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fupareto.federation import Request
from fupareto.methods.registry import find

from .quadratics import QuadraticFederation, linear, quadratic, vector

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-method.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as the reader has it: the method's file, and the experiment that the commands name."""
    path = tmp_path_factory.mktemp("reader")
    (path / "negated.py").write_text(blocks("python")[0])
    (path / "experiments").mkdir()
    demo = (ROOT / "experiments" / "demo.toml").read_text()
    (path / "experiments" / "demo.toml").write_text(demo.replace("rounds = 200", "rounds = 30"))
    return path


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(place), str(ROOT / "src")))}
    command = [sys.executable, "-c", "from fupareto.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)


def test_the_commands_run_as_they_stand(place: Path) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines() if line]
    assert len(commands) == 4
    for command in commands:
        done = run(place, *shlex.split(command)[1:])
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    rounds = [json.loads(line) for line in (place / "runs/a-negated/rounds.jsonl").read_text().splitlines()]
    assert [r["phase"] for r in rounds] == ["negate"] * 20 + ["recover"] * 20
    summary = json.loads((place / "runs/a-negated/summary.json").read_text())
    assert summary["method"] == "negated:Negated"
    first, unlearned = (summary["stages"][stage] for stage in ("initial", "unlearned"))
    assert unlearned["asr"] < first["asr"]
    assert unlearned["distance"] > 0


def test_its_step_is_the_mean_pseudo_gradient_walked_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(place))
    method = find("negated:Negated", {"lr": 0.1, "strength": 0.5, "rounds": 1, "recovery_rounds": 0})
    federation = QuadraticFederation(2, a=linear([1.0, 0.0]), b=linear([0.0, 3.0]), c=quadratic([1, 1], [1, 1]))
    state = method.init(federation, vector(0.0, 0.0), Request(("a", "b")))
    after = method.step(federation, state)
    assert after.done
    assert after.w.tolist() == pytest.approx([0.5 * 0.1 * 0.5, 0.5 * 0.1 * 1.5], rel=1e-4)


def test_the_page_names_what_there_is() -> None:
    for name in re.findall(r"`((?:methods|tests|docs|experiments)/[\w/.-]*)`", PAGE):
        found = [ROOT / name, ROOT / "src" / "fupareto" / name]
        assert any(path.exists() for path in found), name
