"""Audit of a finished run that was made from an experiment file."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from fupareto.audit.checks import Thresholds
from fupareto.audit.further import Curves, not_stored
from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.experiment.host import SILENT, Host
from fupareto.experiment.setting import federation, reachable, stored_experiment
from fupareto.experiment.shadows import make
from fupareto.experiment.unlearn import answer
from fupareto.federation import Request
from fupareto.methods.ridge import Ridge
from fupareto.result import Result
from fupareto.run.directory import Run, refuse_certified
from fupareto.run.reference import PLACES, retraining_seed
from fupareto.vocabulary import retrains


def audit(place: Run, *, host: Host = SILENT, **options: Any) -> dict[str, Any]:
    """Audit a finished run and write its audit.json and summary.json.

    Args:
        place: The run.
        host: Surroundings of the audit.
        **options: Options of :func:`examine`.

    Returns:
        The summary.
    """
    refuse_certified(place.path)
    with place.locked():
        summary, found = examine(place, host=host, **options)
        place.save_results(summary, found)
    return summary


def examine(
    place: Run,
    *,
    tier: int = 1,
    shadows: int | None = None,
    retrain: int = 0,
    reference: Sequence[Path] = (),
    thresholds: Thresholds | None = None,
    dormancy: int | None = None,
    curves: Curves = not_stored,
    host: Host = SILENT,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Measure and audit the models of a finished run again, without overwriting its results.

    Args:
        place: The run.
        tier: 1 attacks the models alone. Tier 2 needs models that were trained like the initial one; at tier 3 half of
            them are made to forget, and half never saw the forgotten.
        shadows: How many such models there are; only at tiers 2 and 3.
        retrain: Make so many retrained models, at most two, to compare with; they are kept in the run.
        reference: One or two runs of the method retrain on the same request to compare with, instead.
        thresholds: Where a number is good enough.
        dormancy: Rounds for which the retained clients train the model on; 0 for none. By default 40, if the run had as
            many.
        curves: Store of the curves of further training.
        host: Surroundings of the audit; only retraining uses its device.
    """
    experiment = stored_experiment(place, f'fupareto.audit(federation, "{place.path}")')
    if not place.finished:
        raise UserError(f"{place.path} is not finished; continue it with --resume first")
    if shadows is not None and tier == 1:
        raise UserError(f"--shadows {shadows} needs --tier 2 or 3: an audit of tier 1 trains no shadow models")
    if place.config.get("kind") == "train":
        if tier > 1 or retrain or reference or dormancy or thresholds not in (None, Thresholds()):
            raise UserError(f"{place.path} is a training run and forgot nothing; audit a run of `fupareto unlearn`")
        return Result.of(place, federation(experiment, root=host.root)[0]).remeasure()
    request = Request.from_json(place.request)
    engine = reachable(federation(experiment, request, host.root)[0], place.config.get("gone", ()))
    result = Result.of(place, engine)
    if len(reference) > len(PLACES):
        raise UserError(f"an audit compares with at most {len(PLACES)} retrained models, not {len(reference)}")
    if not reference:
        for number in range(min(retrain, len(PLACES))):
            retrain_into(place.path / PLACES[number], place, experiment, request, number, host)
    wanted = list(reference) or [place.path / name for name in PLACES]
    must = len(reference) or retrain
    found = [_checked(path, request, experiment, k < must) for k, path in enumerate(wanted)]
    known = [path for path in takewhile(bool, found) if path]
    shadowed = make(place, tier, shadows, host) if tier > 1 else None
    return result.remeasure(known or None, shadowed, thresholds, dormancy, curves, host.progress)


def retrain_into(
    out: Path,
    place: Run,
    experiment: Experiment,
    request: Request,
    number: int = 0,
    host: Host = SILENT,
) -> None:
    """Retrain without what a request names, with the training's own number of rounds; ``number`` 1 has another seed.

    Args:
        out: The run directory of the retrained model; one that is there is continued, or left as it is.
        place: A run that has the initial model.
        experiment: How that was trained.
        request: What is left out.
        number: Which retrained model it is, 0 or 1.
        host: Surroundings of the run.
    """
    weights = place.load_model("initial")
    if weights is None:
        raise UserError(f"{place.path} has no initial.safetensors, with which a retrained model is compared")
    ridge = experiment.train.method == "ridge"
    answer(
        experiment,
        weights,
        out,
        request=request,
        chosen="ridge" if ridge else "retrain",
        options={"ridge": Ridge.ridge, "anew": True} if ridge else {"rounds": experiment.train.rounds},
        measure_every=10,
        resume=True,
        host=host,
        seed=retraining_seed(experiment.seed, number) if number else None,
        attack=False,
        gone=place.config.get("gone", ()),
    )


def _checked(path: Path, request: Request, experiment: Experiment, wanted: bool) -> Path | None:
    """Return the run of a retrained model after a check that it matches; None if it does not exist.

    Args:
        path: Directory of the run.
        request: Request that it must have.
        experiment: Experiment that it must have.
        wanted: Whether the run must exist.
    """
    if not wanted and not (Run.begun(path) and Run.open(path).finished):
        return None
    made = Run.open(path)
    if (
        not retrains(made.config.get("method"))
        or not made.finished
        or Request.from_json(made.request) != request
        or stored_experiment(made) != experiment
    ):
        raise UserError(f"{path} is not a finished run of a retraining for the same request and experiment")
    return path
