"""Processes that make shadow models end with the audit that started them, even if it is killed."""

import os
import subprocess
import sys
import time

PARENT = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from fupareto.experiment.shadows import _end_with_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_ends_with_its_parent(tmp_path: object) -> None:
    script = f"{tmp_path}/parent.py"
    with open(script, "w") as file:  # noqa: PTH123
        file.write(PARENT)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env={**os.environ}) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert alive(worker)
        parent.kill()
    deadline = time.monotonic() + 30
    while alive(worker):
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.05)
