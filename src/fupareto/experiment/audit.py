"""Audit of a finished run that was made from an experiment file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fupareto.audit.checks import Thresholds
from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.experiment.setting import federation, stored_experiment
from fupareto.experiment.shadows import make
from fupareto.experiment.unlearn import answer
from fupareto.federation import Request
from fupareto.result import Result, refuse_certified
from fupareto.run.directory import Run
from fupareto.run.execute import Progress, no_progress, silent


def audit(place: Run, root: Path | None = None, **options: Any) -> dict[str, Any]:
    """Audit a finished run and write its audit.json and summary.json.

    Args:
        place: The run.
        root: Directory of the data sets.
        **options: Options of :func:`examine`.

    Returns:
        The summary.
    """
    refuse_certified(place.path)
    summary, found = examine(place, root, **options)
    place.save_results(summary, found)
    return summary


def examine(
    place: Run,
    root: Path | None = None,
    *,
    tier: int = 1,
    shadows: int | None = None,
    retrain: bool = False,
    reference: Path | None = None,
    thresholds: Thresholds | None = None,
    progress: Progress = no_progress,
    say: Callable[[str], None] = silent,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Measure and audit the models of a finished run again, without overwriting its results.

    Args:
        place: The run.
        root: Directory of the data sets.
        tier: Strength of the attacks. Tier 1 needs no further models. Tier 2 trains shadow models like the initial
            model. Tier 3 trains half of them like the initial model and makes them forget, and the other half without
            the forgotten data.
        shadows: Number of shadow models; by default that of the tier.
        retrain: Retrain a model without the forgotten data, into ``retrained`` in the run directory, and compare.
        reference: Finished run of the method retrain on the same request, to compare with instead.
        thresholds: Limits of the checks.
        progress: Display of the rounds.
        say: Function that shows a remark.

    Returns:
        The summary, and the audit; None in its place for a training run.
    """
    experiment = stored_experiment(place, f'fupareto.audit(federation, "{place.path}")')
    if not place.finished:
        raise UserError(f"{place.path} is not finished; continue it with --resume first")
    if place.config.get("kind") == "train":
        if tier > 1 or retrain or reference:
            raise UserError(f"{place.path} is a training run and forgot nothing; audit a run of `fupareto unlearn`")
        return Result.of(place, federation(experiment, root=root)[0]).remeasure()
    request = Request.from_json(place.request)
    result = Result.of(place, federation(experiment, request, root)[0])
    if retrain and reference is None:
        _retrain(place, experiment, request, root, progress)
    reference = _checked(reference or place.path / "retrained", request, experiment, bool(reference or retrain))
    shadowed = make(place, root, tier, shadows, progress, say) if tier > 1 else None
    return result.remeasure(reference, shadowed, thresholds)


def _retrain(place: Run, experiment: Experiment, request: Request, root: Path | None, progress: Progress) -> None:
    """Retrain into ``retrained`` in the run directory, with as many rounds as the training had."""
    weights = place.load_model("initial")
    if weights is None:
        raise UserError(f"{place.path} has no initial.safetensors, with which a retrained model is compared")
    answer(
        experiment,
        weights,
        place.path / "retrained",
        request=request,
        chosen="retrain",
        options={"rounds": experiment.train.rounds},
        measure_every=10,
        resume=True,
        root=root,
        progress=progress,
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
        made.config.get("method", {}).get("name") != "retrain"
        or not made.finished
        or Request.from_json(made.request) != request
        or stored_experiment(made) != experiment
    ):
        raise UserError(f"{path} is not a finished run of the method retrain for the same request and experiment")
    return path
