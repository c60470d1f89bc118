"""Command line of the fuzzer."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzz.engine import Engine, prepare, told


def main() -> int:
    """Run the fuzzer; exit code 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="fuzz", description="Fuzz the command line of fupareto.")
    parser.add_argument("--cases", type=int, default=10_000, help="number of cases")
    parser.add_argument("--first", type=int, default=1, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case after so many seconds")
    parser.add_argument("--only", type=int, help="run this case alone")
    parser.add_argument("--keep", type=Path, help="keep all files in this directory, which must not exist")
    given = parser.parse_args()
    prepare()
    with tempfile.TemporaryDirectory() as temporary:
        path = given.keep or Path(temporary)
        path.mkdir(parents=True, exist_ok=given.keep is None)
        engine = Engine(path.resolve(), given.seed, given.jobs, given.keep is not None)
        began = time.monotonic()
        first, count = (given.first, given.cases) if given.only is None else (given.only, 1)
        tally = engine.run(range(first, first + count), began + given.seconds)
        print(*tally.lines(), sep="\n")
        print(
            f"{time.monotonic() - began:.0f} s, seed {given.seed}, cases {first} to {first + tally.cases.total() - 1}"
        )
        print(told(tally))
    return 1 if tally.failures else 0


sys.exit(main())
