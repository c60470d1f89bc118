"""A small part of the fuzzer, in a process of its own: make fuzz runs 10,000 cases."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

from fuzz.cases import KINDS
from fuzz.engine import kind_of
from fuzz.mutations import NASTY, alike, bytes_changed, values_changed

TESTS = Path(__file__).parents[1]


def test_no_case_fails() -> None:
    """The cases that there is time for; a case that failed is named, with the command that repeats it."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "fuzz", "--cases", "200", "--seconds", "8", "--jobs", "1"]
    done = subprocess.run(command, env=env | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["failures"] == 0
    assert counts["cases"] > 0


def test_a_seed_gives_the_same_cases() -> None:
    assert [kind_of(0, n) for n in range(100)] == [kind_of(0, n) for n in range(100)]
    assert [kind_of(0, n) for n in range(100)] != [kind_of(1, n) for n in range(100)]
    assert {kind_of(0, n) for n in range(1000)} == set(KINDS)
    values = {"a": [1, 2.5, "x"], "b": {"c": True}}
    assert repr(values_changed(values, Random("0"))) == repr(values_changed(values, Random("0")))
    assert values == {"a": [1, 2.5, "x"], "b": {"c": True}}
    assert bytes_changed(b"x = 1\n" * 9, Random("1")) == bytes_changed(b"x = 1\n" * 9, Random("1"))


def test_a_value_alike_keeps_its_type() -> None:
    for value in (3, 0.5, "x", True, [1, 2]):
        assert {type(alike(value, Random(n))) for n in range(200)} == {type(value)}
    assert len(NASTY) > 50
