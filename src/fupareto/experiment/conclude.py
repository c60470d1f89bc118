"""What ends a run? Measuring its models, the audit, and the summary."""

from collections.abc import Mapping
from typing import Any

from fupareto import auditing, runner
from fupareto.audit.shadowed import Shadowed
from fupareto.audit.verdict import Thresholds
from fupareto.auditing import Truth
from fupareto.experiment.setting import stored_experiment
from fupareto.federation.collected import Local
from fupareto.runs import Run


def conclude(place: Run, outcome: runner.Outcome, facts: Mapping[str, Any]) -> None:
    """Measure and audit a run that has come to its end."""
    keep(place, *examine(place, outcome, facts))


def examine(
    place: Run,
    outcome: runner.Outcome,
    facts: Mapping[str, Any],
    retrained: Truth | None = None,
    shadowed: Shadowed | None = None,
    thresholds: Thresholds | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the summary and the audit of a run that answered a request."""
    experiment = stored_experiment(place)
    training = experiment.train
    summary = runner.summarise(outcome, facts)
    found = auditing.audit(
        outcome,
        summary,
        seed=experiment.seed,
        retrained=retrained,
        local=Local(training.lr, training.epochs, training.batch_size, experiment.seed),
        shadowed=shadowed,
        thresholds=thresholds,
    )
    return auditing.with_membership(summary, found), found


def keep(place: Run, summary: Mapping[str, Any], found: Mapping[str, Any] | None) -> None:
    """Write both; the summary last, for it says that the run is complete."""
    if found is not None:
        place.save_audit(found)
    place.save_summary(summary)
