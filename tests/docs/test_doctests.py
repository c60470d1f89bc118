"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import fupareto

NAMES = [found.name for found in pkgutil.walk_packages(fupareto.__path__, "fupareto.")]


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_a_module(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "fupareto":
            raise
        pytest.skip(f"{error.name} is not installed")
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert failed == 0


def test_there_are_examples() -> None:
    """Else the test above would pass on nothing."""
    finder = doctest.DocTestFinder()
    modules = [importlib.import_module(name) for name in NAMES if name.startswith("fupareto.pareto")]
    assert any(test.examples for module in modules for test in finder.find(module))
