"""A seeded fuzzer of the command line: bad files, bad options and damaged run directories.

    PYTHONPATH=tests python -m fuzz --cases 10000 --seed 0      all of it (make fuzz)
    PYTHONPATH=tests python -m fuzz --only 1234 --keep DIR      one case again, with its files

Every case is a command in a process of its own, forked from one that has imported everything; some are started as a
user would. It may end with exit code 0 or 2. A traceback, another exit code, a signal, a command that does not end, a
refusal that changes files, and input that is accepted but not used as it says are failures.
"""
