"""Checks of an audit against thresholds, and the verdict made of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fupareto import tally
from fupareto.audit.checking import forgetting, membership, retained, truth
from fupareto.audit.checking.base import Check as Check
from fupareto.audit.checking.base import heard
from fupareto.audit.thresholds import Thresholds as Thresholds

CLOSING = "This holds for the measurements made here; none of them shows that anybody's data were deleted."


def checks(summary: Mapping[str, Any], audit: Mapping[str, Any], limits: Thresholds) -> list[Check]:
    """Return every check of the run's final model."""
    final, stages = summary["final"], summary["stages"]
    first, last = stages["initial"], stages[final]
    missing = {side: [i for i in summary["missing"] if (i in summary["forget"]) == side] for side in (True, False)}
    found = [
        forgetting.forgotten(summary, audit, missing[True], limits),
        forgetting.lasting(summary, audit, missing[True], limits),
        heard(retained.useful(first, last, limits), missing[False]),
        retained.exclusive(audit["exclusivity"]["clients"], missing[False], limits),
        heard(membership.private(audit["membership"].get(final, {}), summary["forget"], limits), missing[True]),
        truth.alike(audit, final, missing[True], limits),
        truth.removed(audit, final, missing[True], limits),
    ]
    told_apart = audit["told_apart"]
    return [*found, membership.apart(told_apart, summary["forget"], limits)] if told_apart else found


def verdict(headline: str, found: Sequence[Check]) -> dict[str, Any]:
    """Return the audit's verdict: its checks, their tally, and both in words."""
    made = [check.to_json() for check in found]
    counts = tally.tally(made)
    return {"checks": made, "tally": counts, "text": paragraph(tally.with_tally(headline, counts), found)}


def paragraph(headline: str, found: Sequence[Check]) -> str:
    """Say what was and what was not shown; ``headline`` is what was measured, in a sentence or two."""
    text = headline
    for result, words in (("shown", "Shown"), ("refuted", "Refuted"), ("open", "Open")):
        if said := [f"{check.claim} ({check.text})" for check in found if check.result == result]:
            text += f" {words}: {'; '.join(said)}."
    return f"{text} {CLOSING}"
