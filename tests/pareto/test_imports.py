"""The mathematics stands alone: `pareto` imports nothing else of the package."""

import ast
import sys
from pathlib import Path

import pytest

import fupareto.pareto

MODULES = sorted(Path(fupareto.pareto.__file__).parent.glob("*.py"))


def imported(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_imports_nothing_else_of_ours(module: Path) -> None:
    ours = {name for name in imported(module.read_text(encoding="utf-8")) if name.startswith((".", "fupareto"))}
    assert all(name.startswith("fupareto.pareto.") for name in ours), ours
    allowed = {*sys.stdlib_module_names, "numpy", "scipy", "torch", "fupareto"}
    assert {name.split(".")[0] for name in imported(module.read_text(encoding="utf-8"))} <= allowed


def test_public_names_exist() -> None:
    assert len(MODULES) >= 6
    for name in fupareto.pareto.__all__:
        assert hasattr(fupareto.pareto, name)
