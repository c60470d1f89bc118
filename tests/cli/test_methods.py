"""The command methods, and the version."""

import json
import subprocess
import sys
from dataclasses import fields
from importlib import metadata

from fupareto.methods.registry import METHODS, find, presets

from .conftest import Call


def test_the_list_has_every_method_and_preset_in_a_line(call: Call) -> None:
    ended = call("methods")
    assert ended.code == 0
    lines = ended.out.splitlines()
    for name, cls in METHODS.items():
        line = next(line for line in lines if line.split()[:1] == [name])
        assert (cls.__doc__ or "").splitlines()[0] in line
        assert ("samples, classes" in line) != cls.whole_clients
        assert (f"--record {cls.history}" in line) == bool(cls.history)
        for preset in presets(name):
            assert any(line.split()[:1] == [preset] for line in lines)


def test_one_method_with_its_options(call: Call) -> None:
    for name in ("fedosd", "fupareto:paper"):
        found, made = json.loads(call("methods", name, "--json").out), find(name)
        assert {key: option["default"] for key, option in found["options"].items()} == {
            f.name: getattr(made, f.name) for f in fields(made)
        }
        shown = call("methods", name).out
        assert all(f.name in shown for f in fields(made))
    assert "printed" in call("methods", "fupareto:paper").out
    whole = json.loads(call("methods", "--json").out)
    assert [method["name"] for method in whole] == list(METHODS)


def test_a_method_of_the_users_with_an_option_that_must_be_given(call: Call) -> None:
    ended = call("methods", "fupareto.methods.sequential:Sequential")
    assert ended.code == 0
    assert "requests" in ended.out


def test_an_unknown_method(call: Call) -> None:
    ended = call("methods", "fedods")
    assert ended.code == 2
    assert "did you mean 'fedosd'?" in ended.err


def test_the_package_is_a_command_too() -> None:
    ended = subprocess.run([sys.executable, "-m", "fupareto", "--version"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"fupareto {metadata.version('fupareto')}\n")


def test_version(call: Call) -> None:
    ended = call("--version")
    assert (ended.code, ended.out) == (0, f"fupareto {metadata.version('fupareto')}\n")
