"""Requests of a ledger whose federation is defined by an experiment file; replay of runs of such files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fupareto import parse
from fupareto.answering import How
from fupareto.errors import UserError
from fupareto.evidence import FAILED, NOT_CHECKED, OK, Finding, Ledger
from fupareto.evidence.keys import Signer
from fupareto.experiment.audit import examine
from fupareto.experiment.setting import federation, reachable, stored_experiment
from fupareto.experiment.unlearn import answer
from fupareto.federation import Federation, Request
from fupareto.federation.history import History
from fupareto.federation.recording import WithHistory
from fupareto.methods.registry import find
from fupareto.run import replay as replaying
from fupareto.run.directory import Run
from fupareto.run.execute import Progress, no_progress

LEVELS = {replaying.BITS: OK, replaying.CLOSE: OK, replaying.WRONG: FAILED, replaying.UNKNOWN: NOT_CHECKED}


def how(
    ledger: Ledger,
    *,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    signer: Signer | None = None,
    root: Path | None = None,
    progress: Progress = no_progress,
    **audit: Any,
) -> How:
    """Return how requests are answered in the federation of an experiment file.

    Args:
        ledger: The ledger; its first run names the experiment.
        method: Unlearning method; by default the experiment's.
        options: Options of the method.
        signer: Key of the operator.
        root: Directory of the data sets.
        progress: Display of the rounds.
        **audit: Options of :func:`examine`, such as ``retrain``.
    """
    place = Run.open(ledger.run_of(ledger.entries[0]))
    experiment = stored_experiment(place, "fupareto.answering.answer(ledger, numbers, how)")
    extra = any(value for value in audit.values())

    def unlearn(start: Path, out: Path, request: Request, gone: Sequence[str]) -> Run:
        run = answer(
            experiment,
            start,
            out,
            request=request,
            chosen=method or experiment.unlearn.method,
            options=options or {},
            resume=True,
            root=root,
            progress=progress,
            attack=not extra,
            gone=gone,
        )
        if extra and run.audit is None:
            run.save_results(*examine(run, root, progress=progress, **audit))
        return run

    def clients(request: Request, gone: Sequence[str]) -> Federation:
        return reachable(federation(experiment, request, root)[0], gone)

    return How(unlearn, clients, signer)


def replay(run: Path, rounds: str, root: Path | None = None) -> list[Finding]:
    """Compute rounds of a run again and compare the models.

    Args:
        run: The run directory.
        rounds: Numbers of rounds, separated by commas, or ``all`` for those whose states are kept.
        root: Directory of the data sets.
    """
    place = Run.open(run)
    experiment = stored_experiment(place, f'fupareto.replay(federation, "{run}")')
    engine = reachable(federation(experiment, Request.from_json(place.request), root)[0], place.config.get("gone", ()))
    return replayed(place, engine, rounds)


def replayed(place: Run, engine: Federation, rounds: str) -> list[Finding]:
    """Compute rounds of a run again with a federation, divided for its request, and return what was found."""
    try:
        numbers = [] if rounds.strip() == "all" else [int(part) for part in parse.listed(rounds)]
    except ValueError as error:
        raise UserError(f"--replay takes numbers of rounds, such as 17,93, or all, not {rounds!r}") from error
    settings = dict(place.config["method"])
    name = settings.pop("name")
    if "method" in settings:  # a sequential run packs the states of its method
        return [Finding(NOT_CHECKED, "method", "A run that forgot clients one after the other is not replayable.")]
    trained = place.config.get("trained")
    history = History.open(Path(trained) / "history") if trained else None
    engine = engine if history is None else WithHistory(engine, history)
    found = replaying.replay(place, find(name, settings), engine, numbers)
    if not found:
        return [Finding(NOT_CHECKED, "method", "No round's state was kept, so none is replayable.")]
    return [Finding(LEVELS[one.result], f"round.{one.round}", f"Round {one.round}: {one.text}.") for one in found]
