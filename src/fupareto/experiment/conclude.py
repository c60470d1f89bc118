"""What ends a run? Measuring its models, the audit, and the summary."""

from collections.abc import Mapping
from typing import Any

from fupareto.audit import assemble
from fupareto.audit.assemble import Truth
from fupareto.audit.attacks.shadowed import Shadowed
from fupareto.audit.checks import Thresholds
from fupareto.experiment.setting import stored_experiment
from fupareto.federation.collected import Local
from fupareto.run import loop
from fupareto.run.directory import Run


def conclude(place: Run, outcome: loop.Outcome, facts: Mapping[str, Any]) -> None:
    """Measure and audit a run that has come to its end."""
    keep(place, *examine(place, outcome, facts))


def examine(
    place: Run,
    outcome: loop.Outcome,
    facts: Mapping[str, Any],
    retrained: Truth | None = None,
    shadowed: Shadowed | None = None,
    thresholds: Thresholds | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the summary and the audit of a run that answered a request."""
    experiment = stored_experiment(place)
    training = experiment.train
    summary = loop.summarise(outcome, facts)
    found = assemble.audit(
        outcome,
        summary,
        seed=experiment.seed,
        retrained=retrained,
        local=Local(training.lr, training.epochs, training.batch_size, experiment.seed),
        shadowed=shadowed,
        thresholds=thresholds,
    )
    return assemble.with_membership(summary, found), found


def keep(place: Run, summary: Mapping[str, Any], found: Mapping[str, Any] | None) -> None:
    """Write both; the summary last, for it says that the run is complete."""
    if found is not None:
        place.save_audit(found)
    place.save_summary(summary)
