"""The way of every run: a trial of the method, the memory check, the run directory, and the loop."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fupareto.errors import UserError
from fupareto.federation.contract import Federation
from fupareto.federation.history import Plan
from fupareto.federation.recording import WithHistory, record
from fupareto.federation.request import Request
from fupareto.methods.base import Method
from fupareto.run import budget, loop
from fupareto.run.directory import Run
from fupareto.run.in_memory import MemoryRun
from fupareto.run.loop import Outcome, Watch
from fupareto.run.start import Start

Progress = Callable[[str, int], AbstractContextManager[Watch | None]]  # of a title and a number of rounds


def no_progress(title: str, rounds: int) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Settings:
    """How a run is carried out, and where it is kept.

    Attributes:
        seed: Everything random comes from it.
        out: The run directory; None keeps the run in memory.
        resume: Continue the run that ``out`` holds.
        measure_every: Rounds from one measurement of the model to the next; 0 measures the last model of a stage.
        progress: How rounds are shown while they run.
        say: Where remarks go.
        config: What config.toml says; by default the method, the seed and where the model comes from.
        facts: What summary.json says besides numbers: name, method, dataset, model.
    """

    seed: int = 0
    out: Path | None = None
    resume: bool = False
    measure_every: int = 1
    progress: Progress = no_progress
    say: Callable[[str], None] = silent
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Work:
    method: Method
    federation: Federation
    start: Start
    request: Request | None
    about: Request | None  # what models are measured against


def train(
    federation: Federation, start: Start, method: Method, settings: Settings, *, about: Request | None, plan: Plan
) -> Outcome:
    """Train a model into its place; it is measured against ``about``, a request to come.

    What ``plan`` names is recorded into the run directory on the way.
    """
    try:
        method.init(federation, start.w, None, settings.seed)
    except ValueError as error:
        raise UserError(f"method '{method.name}' cannot train a model: {error}; FedAvg can") from error
    budget.check(method, federation, 0, len(federation.ids))
    place = _place(settings, None)
    if not place.finished and place.path is not None:
        federation = record(federation, place.path / "history", plan, settings.say)
    return _run("training", _Work(method, federation, start, None, about), place, settings)


def answer(federation: Federation, start: Start, request: Request, method: Method, settings: Settings) -> Outcome:
    """Answer a request into its place; parts of clients that it names are virtual clients of the federation already."""
    if start.history is not None:
        federation = WithHistory(federation, start.history)
    sides = request.sides(federation.ids)
    if settings.out is not None:  # a request that the method cannot answer should leave nothing behind
        method.init(federation, start.w, request, settings.seed)
    budget.check(method, federation, *map(len, sides))
    place = _place(settings, request)
    begun = place.load_model("initial")
    if begun is not None and not torch.equal(federation.layout.flat(begun), start.w.cpu()):
        raise UserError(
            f"{settings.out} began from another initial model; resume it with that one, or choose another directory"
        )
    title = "retraining" if method.name == "retrain" else "unlearning"
    return _run(title, _Work(method, federation, start, request, request), place, settings)


def _place(settings: Settings, request: Request | None) -> Run | MemoryRun:
    asked = request.to_json() if request else None
    if settings.out is None:
        return MemoryRun(settings.config, asked)
    return Run.make(settings.out, settings.config, asked, settings.resume)


def _run(title: str, work: _Work, place: Run | MemoryRun, settings: Settings) -> Outcome:
    """Step the method to its end, unless that was done before."""
    federation, about = work.federation, work.about
    if place.finished:
        sides = about.sides(federation.ids) if about else ((), federation.ids)
        return Outcome(federation, place, sides, about.words() if about else "")
    with settings.progress(title, work.method.budget) as watch:
        return loop.run(
            work.method,
            federation,
            work.start.w,
            work.request,
            seed=settings.seed,
            place=place,
            about=about,
            measure_every=settings.measure_every,
            watch=watch,
        )
