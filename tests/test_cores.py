import os
import subprocess
import sys

import pytest

from fupareto.cores import usable_cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be taken from a process here")
def test_cores_taken_from_a_process_are_not_counted() -> None:
    """Of all cores one is left, as ``taskset -c`` does."""
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{one}}}); from fupareto.cores import usable_cores; print(usable_cores())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "1"


def test_all_cores_are_counted_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_cores() == os.cpu_count()
