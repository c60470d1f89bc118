"""Dependencies point one way: cli -> experiment, flower -> api -> run -> methods -> (pareto, tasks, federation)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fupareto

ROOT = Path(fupareto.__file__).parent
PROGRAMS = {"cli", "experiment", "flower", "bench"}
LOOP = {"run", "api", "result", *PROGRAMS}
FORBIDDEN: dict[str, set[str]] = {
    "pareto": {path.stem for path in ROOT.iterdir()} - {"pareto", "__init__"},
    "federation": {"methods", "audit", "report", "data", *LOOP},
    "methods": {"report", "data", "audit", *LOOP},
    "report": {"federation", "methods", "run", "experiment", "bench"},
    "data": {"federation", "methods", *LOOP},
    "audit": {"methods", "report", *LOOP},
    "tasks": {"federation", "methods", "audit", "report", "data", *LOOP},
    "evidence": {"cli", "experiment", "methods", "federation", "report", "audit"},
    "run": {"report", "data", "evidence", *LOOP} - {"run"},
    "result": {"api", "data", "evidence", *PROGRAMS},
    "api": {"report", "data", "evidence", *PROGRAMS},
    "flower": {"cli", "experiment", "bench", "data", "report"},
    "experiment": {"cli", "flower", "bench", "report"},
}


def imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, wherever the import stands; relative ones made absolute."""
    names: set[str] = set()
    package = ["fupareto", *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *([node.module] if node.module else [])]
            names |= {".".join([*base, alias.name]) for alias in node.names}
    return names


def part(name: str) -> str:
    """Which part of the package a name belongs to; empty for other packages."""
    package, _, rest = name.partition(".")
    return rest.split(".")[0] if package == "fupareto" else ""


def files(name: str) -> list[Path]:
    found = sorted((ROOT / name).rglob("*.py")) or [ROOT / f"{name}.py"]
    assert all(path.exists() for path in found)
    return found


@pytest.mark.parametrize("name", FORBIDDEN)
def test_parts_import_only_what_is_below_them(name: str) -> None:
    for path in files(name):
        wrong = {found for found in imports(path) if part(found) in FORBIDDEN[name]}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_report_imports_no_torch() -> None:
    for path in files("report"):
        assert not {name for name in imports(path) if name.split(".")[0] == "torch"}, path


def test_one_orchestrator_runs_methods() -> None:
    """Experiments, Flower apps and shadow models go through the API; nothing else has the loop in its hands."""
    loop = {"fupareto.run.loop", "fupareto.run.loop.run", "fupareto.run.execute"}
    found = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if imports(path) & loop}
    assert found == {"run/execute.py", "run/reference.py", "api.py"}


def test_nothing_imports_the_command_line() -> None:
    """But ``python -m fupareto``, which is the command line."""
    found = {path.relative_to(ROOT).parts[0] for path in ROOT.rglob("*.py") if "cli" in map(part, imports(path))}
    assert found == {"cli", "__main__.py"}


def test_the_rule_sees_imports() -> None:
    """Else every test above would pass on an empty reading."""
    seen = {part(name) for path in files("methods") for name in imports(path)}
    assert {"federation", "tasks", "pareto"} <= seen


def test_the_command_line_starts_light() -> None:
    heavy = ["torch", "scipy", "sklearn", "matplotlib"]
    code = f"import sys, fupareto.cli; print(*[m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
