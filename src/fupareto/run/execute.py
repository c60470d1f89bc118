"""Execution of a run: checks of method and memory, the run directory, and the loop."""

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

Progress = Callable[[str, int], AbstractContextManager[Watch | None]]  # of (title, number of rounds)


def no_progress(title: str, rounds: int) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def silent(text: str) -> None:
    """Discard a remark."""


@dataclass(frozen=True)
class Settings:
    """Settings of a run that do not depend on the method.

    Attributes:
        seed: Seed of all random choices.
        out: Run directory; None keeps the run in memory.
        resume: Continue the run in ``out``.
        measure_every: Rounds between measurements of the model; 0 measures only the last model of a stage.
        progress: Display of the rounds.
        say: Function that shows a remark.
        config: Content of config.toml.
        facts: Entries of summary.json that are not measured, such as name, method, dataset and model.
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
    """A method and its inputs."""

    method: Method
    federation: Federation
    start: Start
    request: Request | None
    about: Request | None  # request against which models are measured


def held(settings: Settings) -> AbstractContextManager[None]:
    """Hold the lock of the run directory, if there is one; another process that wants to write to it is refused."""
    return nullcontext() if settings.out is None else Run.held(settings.out, settings.resume)


def train(
    federation: Federation, start: Start, method: Method, settings: Settings, *, about: Request | None, plan: Plan
) -> Outcome:
    """Train a model.

    Args:
        federation: The clients.
        start: Model to start from.
        method: Training method.
        settings: Settings of the run.
        about: Later request against which the model is already measured.
        plan: History to record in the run directory.
    """
    try:
        method.init(federation, start.w, None, settings.seed)
    except ValueError as error:
        raise UserError(f"method '{method.name}' cannot train a model: {error}; use FedAvg") from error
    budget.check(method, federation, 0, len(federation.ids))
    place = _place(settings, None)
    if not place.finished and place.path is not None:
        federation = record(federation, place.path / "history", plan, settings.say)
    return _run("training", _Work(method, federation, start, None, about), place, settings)


def answer(federation: Federation, start: Start, request: Request, method: Method, settings: Settings) -> Outcome:
    """Answer a request.

    Args:
        federation: The clients, already divided for the request.
        start: Model that is to forget.
        request: What must be forgotten.
        method: Unlearning method.
        settings: Settings of the run.
    """
    if start.history is not None:
        federation = WithHistory(federation, start.history)
    sides = request.sides(federation.ids)
    if settings.out is not None:  # raise for a request that the method cannot answer before a directory is created
        method.init(federation, start.w, request, settings.seed)
    budget.check(method, federation, *map(len, sides))
    place = _place(settings, request)
    begun = place.load_model("initial")
    if begun is not None and not torch.equal(federation.layout.flat(begun), start.w.cpu()):
        raise UserError(
            f"cannot resume {settings.out}: it started from another initial model; resume it with that model, or "
            "choose another directory"
        )
    title = "retraining" if method.name == "retrain" else "unlearning"
    return _run(title, _Work(method, federation, start, request, request), place, settings)


def _place(settings: Settings, request: Request | None) -> Run | MemoryRun:
    """Create or open the storage of the run."""
    asked = request.to_json() if request else None
    if settings.out is None:
        return MemoryRun(settings.config, asked)
    return Run.make(settings.out, settings.config, asked, settings.resume)


def _run(title: str, work: _Work, place: Run | MemoryRun, settings: Settings) -> Outcome:
    """Run the method to its end, unless the run is already finished."""
    federation, about = work.federation, work.about
    if place.finished:
        sides = about.sides(federation.ids) if about else ((), federation.ids)
        return Outcome(federation, place, sides, about.words() if about else "")
    with settings.progress(title, work.method.expected) as watch:
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
