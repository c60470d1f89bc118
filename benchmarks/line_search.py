"""How many forward passes does the line search of a whole run take, and how many would an exhaustive one?

    python benchmarks/line_search.py [--tiny] [--runs runs/line-search] [--out benchmarks/line_search.json]

Every cell of experiments/participation-fmnist.toml, which is FUPareto on Fashion-MNIST with everybody, a half and a
fifth of those who stay in each round (at the scale "laptop"). Counted is what clients began to compute, also where a
veto came too late to spare them. The exhaustive search is the paper's: in every round that searches, everybody computes
the loss at every step of the range. The decisions are the same (tests/methods/fupareto/test_search.py).
An initial model that is under --runs already is used; cells are run anew, since what is resumed was not counted.
"""

import argparse
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from common import RESULTS, skip, write
from fupareto.bench import file, run
from fupareto.errors import UserError
from fupareto.experiment import Host
from fupareto.federation import SimulatedFederation
from fupareto.federation.questions import Answer, Failure, Question, TrialLosses
from fupareto.pareto import trial_steps
from fupareto.run.directory import Run

EXPERIMENTS = RESULTS.parent / "experiments"


class Counter:
    """Counts the trial losses that clients begin to compute, whichever federation they are of."""

    def __init__(self) -> None:
        self.passes = 0
        self._lock = threading.Lock()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        inner = SimulatedFederation._answer

        def counting(federation: SimulatedFederation, client: str, question: Question) -> Answer | Failure:
            if isinstance(question, TrialLosses):
                with self._lock:
                    self.passes += len(question.steps)
            return inner(federation, client, question)

        with mock.patch.object(SimulatedFederation, "_answer", counting):
            yield

    def taken(self) -> int:
        """Return the passes since the last call."""
        found, self.passes = self.passes, 0
        return found


def row(cell: file.Cell, result: dict[str, Any], passes: int) -> dict[str, Any]:
    """Return what the searches of a finished cell asked for."""
    rounds = Run.open(cell.out).rounds()
    searched = [r for r in rounds if r.get("tried")]
    s = result["options"]["s"]
    return {
        "label": cell.entry.label,
        "seed": cell.seed,
        "rounds": len(rounds),
        "rounds_without_a_step": sum(r["step"] is None for r in rounds),
        "steps_tried": sum(len(r["tried"]) for r in searched),
        "passes": passes,
        "passes_if_everybody_answers_every_tried_step": sum(len(r["tried"]) * len(r["losses"]) for r in searched),
        "passes_of_the_exhaustive_search": sum(
            len(trial_steps(1.0, s, enlarge=r["phase"] != "expand")) * len(r["losses"]) for r in searched
        ),
        "stages": {name: {k: stage[k] for k in ("asr", "r_acc")} for name, stage in result["stages"].items()},
        "seconds": result["cost"]["seconds"],
    }


def chosen_bench(tiny: bool) -> tuple[file.Bench, str]:
    """Return the experiment, or a run on data that every installation has."""
    if not tiny:
        return file.load(EXPERIMENTS / "participation-fmnist.toml", "laptop"), "laptop"
    bench = file.load(EXPERIMENTS / "requests-digits.toml", "full")
    few = {"rounds": 4, "recovery_rounds": 2}
    methods = [
        m.model_copy(update={"options": {**m.options, **few}}) for m in bench.methods if m.method == "fupareto:guard"
    ]
    experiment = {**bench.experiment, "train": {**bench.experiment["train"], "rounds": 3}}
    changes = {"methods": methods[:1], "settings": bench.settings[:1], "seeds": bench.seeds[:1]}
    return bench.model_copy(update={**changes, "experiment": experiment}), "tiny"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="see that it runs; the numbers mean nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/line-search"))
    parser.add_argument("--out", type=Path, default=RESULTS / "line_search.json")
    chosen = parser.parse_args(arguments)
    bench, scale = chosen_bench(chosen.tiny)
    counter, found = Counter(), []

    def done(cell: file.Cell, result: dict[str, Any]) -> None:
        found.append(row(cell, result, counter.taken()))
        print(f"  {found[-1]}", flush=True)

    with tempfile.TemporaryDirectory() as scratch, counter.at_work():
        place = Path(scratch) if chosen.tiny else chosen.runs
        for cell in file.cells(bench, place):
            shutil.rmtree(cell.out, ignore_errors=True)
        try:
            run.run(bench, place, host=Host(say=print), done=done)
        except UserError as error:  # no data set, most likely
            skip("line search", str(error))
            return
    write(chosen.out, {"experiment": bench.name, "scale": scale, "reduced": bench.reduced, "cells": found})


if __name__ == "__main__":
    main()
