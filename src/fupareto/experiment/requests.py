"""Requests of a ledger whose federation is defined by an experiment file; replay of runs of such files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fupareto.answering import How
from fupareto.evidence import Finding, Ledger
from fupareto.evidence.keys import Signer
from fupareto.experiment.audit import examine
from fupareto.experiment.host import SILENT, Host
from fupareto.experiment.setting import federation, reachable, stored_experiment
from fupareto.experiment.unlearn import answer
from fupareto.federation import Federation, Request
from fupareto.result import Result
from fupareto.run.directory import Run
from fupareto.verification import replayed


def how(
    ledger: Ledger,
    *,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    signer: Signer | None = None,
    host: Host = SILENT,
    **audit: Any,
) -> How:
    """Return how requests are answered in the federation of an experiment file.

    Args:
        ledger: The ledger; its first run names the experiment.
        method: Unlearning method; by default the experiment's.
        options: Options of the method.
        signer: Key of the operator.
        host: Surroundings of the runs.
        **audit: Options of :func:`examine`, such as ``retrain``; without any, the audit is that of :func:`unlearn`.
    """
    place = Run.open(ledger.run_of(ledger.entries[0]))
    experiment = stored_experiment(place, "fupareto.answering.answer(ledger, numbers, how)")

    def unlearn(start: Path, out: Path, request: Request, gone: Sequence[str]) -> Run:
        run = answer(
            experiment,
            start,
            out,
            request=request,
            chosen=method or experiment.unlearn.method,
            options=options or {},
            resume=True,
            attack=not audit,
            gone=gone,
            host=host,
        )
        if audit and run.audit is None:
            run.save_results(*examine(run, host=host, **audit))
        return run

    def clients(request: Request, gone: Sequence[str]) -> Federation:
        return reachable(federation(experiment, request, host.root)[0], gone)

    return How(unlearn, clients, signer)


def replay(run: Path, rounds: str, root: Path | None = None) -> list[Finding]:
    """Compute rounds of a run again and compare the models.

    Args:
        run: The run directory.
        rounds: Numbers of rounds, separated by commas, ``all`` for those whose states are kept, or ``every``.
        root: Directory of the data sets.
    """
    result = stored(run, root)
    return replayed(Run.open(run), result.outcome.federation, rounds)


def stored(run: Path, root: Path | None = None) -> Result:
    """Return the result of a run that was made from an experiment file, with its clients.

    Args:
        run: The run directory.
        root: Directory of the data sets.
    """
    place = Run.open(run)
    experiment = stored_experiment(place, f'fupareto.verify("{run}", federation, replay="all")')
    engine = federation(experiment, Request.from_json(place.request), root)[0]
    return Result.of(place, reachable(engine, place.config.get("gone", ())))
