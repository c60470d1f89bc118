"""What a program sees of the package: names, imported when they are asked for, and Flower only where it is there."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import fupareto

ROOT = Path(__file__).parents[1]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_public_names() -> None:
    for name in fupareto.__all__:
        assert getattr(fupareto, name).__doc__
    assert dir(fupareto) == sorted(fupareto.__all__)
    assert {"train", "unlearn", "audit", "simulate", "flower", "Result", "__version__"} <= set(dir(fupareto))
    assert fupareto.__version__ == metadata.version("fupareto")
    with pytest.raises(AttributeError, match="no attribute 'unlaern'"):
        _ = fupareto.unlaern


def test_importing_is_light_and_says_nothing() -> None:
    code = "import sys, fupareto; fupareto.flower; print([m for m in ('torch', 'flwr', 'numpy') if m in sys.modules])"
    done = python(code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_flower_is_there_without_an_import_of_its_own() -> None:
    done = python("import fupareto; print(fupareto.flower.server_app.__name__, dir(fupareto.flower))")
    assert done.stdout == "server_app ['FlowerFederation', 'add_unlearning', 'client_app', 'server_app']\n", done.stderr


@pytest.mark.parametrize("name", ["FlowerFederation", "client_app", "add_unlearning", "server_app"])
def test_without_flower_it_is_said_what_to_install(name: str) -> None:
    code = f"import sys; sys.modules['flwr'] = None\nimport fupareto\nfupareto.flower.{name}"
    done = python(code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ModuleNotFoundError: fupareto.flower.{name} needs Flower")
    assert "pip install 'fupareto[flower]'" in done.stderr


def test_the_function_and_the_package_of_one_name() -> None:
    """``fupareto.audit`` is a call, whatever of the package has been imported before."""
    code = """
import fupareto
import fupareto.audit.checks
from fupareto.audit import measure
try:
    fupareto.audit(None, "nowhere")
except fupareto.UserError as error:
    print(error, fupareto.audit.checks.Thresholds is fupareto.Thresholds)
"""
    done = python(code)
    assert done.stdout == "there is no run directory nowhere True\n", done.stderr


def test_what_the_package_ships_is_there() -> None:
    import tomllib

    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["fupareto"]
    for pattern in data:
        assert list((ROOT / "src/fupareto").glob(pattern)), pattern
