"""Memory that is kept, seen by the pages that a process still holds after a large tensor is gone."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told to keep memory")

TENSOR = 200 * 2**20  # bytes
HELD = f"""
import torch

def held():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

before = held()
large = torch.ones({TENSOR // 4})
assert held() - before > {TENSOR // 2}
del large
print(held() - before)
"""
KEEP = "from fupareto.allocation import keep_freed_memory; keep_freed_memory()"
COMMAND = """
import sys
from fupareto.cli import main
sys.argv = ["fupareto", "--version"]
try:
    main()
except SystemExit:
    pass
"""


def held_after(first: str, **environment: str) -> int:
    """Return how many bytes more than before a process holds when its tensor is gone."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    code = [sys.executable, "-c", first + HELD]
    told = subprocess.run(code, env=clean | environment, capture_output=True, text=True, check=True)
    return int(told.stdout.split()[-1])


def test_it_is_kept_by_a_process_that_asks_for_it_and_by_commands() -> None:
    assert held_after("") < TENSOR // 2
    assert held_after(KEEP) > TENSOR // 2
    assert held_after(COMMAND) > TENSOR // 2


def test_the_library_alone_changes_nothing() -> None:
    assert held_after("import fupareto; fupareto.simulate") < TENSOR // 2


def test_settings_of_the_user_have_precedence() -> None:
    assert held_after(KEEP, MALLOC_ARENA_MAX="2") < TENSOR // 2
