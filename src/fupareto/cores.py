"""The processor cores that this process may use."""

import os


def usable_cores() -> int:
    """Return the number of cores that the scheduler gives this process, as set by ``taskset`` or a batch system.

    Where the system does not tell, it is the number of all cores.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
