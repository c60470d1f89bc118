"""Checks against retrained models: outputs on the forgotten data, and relearning them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fupareto.audit.checking.base import Check, at_least, at_most, few, heard
from fupareto.audit.estimates import divergence
from fupareto.audit.thresholds import Thresholds
from fupareto.audit.way import ratio
from fupareto.vocabulary import SECOND


def alike(audit: Mapping[str, Any], final: str, missing: Sequence[str], limits: Thresholds) -> Check:
    """Check the divergence from a retrained model by that between two retrained models."""
    compared = ((audit["truth"] or {}).get("stages", {}).get(stage) or {} for stage in (final, SECOND))
    return heard(_alike(audit, final, limits), _with(missing, compared))


def _alike(audit: Mapping[str, Any], final: str, limits: Thresholds) -> Check:
    claim, truth = limits.claim("alike"), audit["truth"]
    own, other = divergence(truth, final), divergence(truth, SECOND)
    if own is None:
        text = "there is no retrained model to compare with"
        return Check("alike", claim, "open", text, threshold=limits.spread)
    gone = _gone(audit, "divergence", final)
    text = f"outputs differ by {own.value:.3f} bits from a retrained model's"
    if gone and gone["value"] is not None:
        text += f", {100 * gone['value']:.0f}% of the way from the initial model"
    if other is None:
        text += "; two retrained models are needed to say whether that is much, ask for them with --retrain 2"
        return Check("alike", claim, "open", text, threshold=limits.spread)
    text += f"; two retrained models differ by {other.value:.3f} bits"
    found = ratio(own, other)
    if found.value is None or found.low is None or found.high is None:
        return Check("alike", claim, "open", f"{text}; {found.reason}", threshold=limits.spread)
    result = at_most(found.low, found.high, limits.spread)
    return Check("alike", claim, result, text + few(result), found.value, limits.spread, found.low, found.high)


def removed(audit: Mapping[str, Any], final: str, missing: Sequence[str], limits: Thresholds) -> Check:
    """Check the way gone in slow relearning."""
    relearnt = (audit.get("relearning") or {}).get("models", {})
    return heard(_removed(audit, final, limits), _with(missing, relearnt.values()))


def _removed(audit: Mapping[str, Any], final: str, limits: Thresholds) -> Check:
    claim, gone = limits.claim("removed"), _gone(audit, "relearning", final)
    if not gone:
        text = "relearning was not compared with a retrained model"
        return Check("removed", claim, "open", text, threshold=limits.relearning)
    known = audit["way"]["relearning"]["values"]
    words = [
        f"{name} {known[stage]['value']:.3f}"
        for name, stage in (("the initial model", "initial"), ("this one", final), ("a retrained one", "retrained"))
        if stage in known
    ]
    text = f"mean over slow relearning: {', '.join(words)}"
    if gone["value"] is None:
        return Check("removed", claim, "open", f"{text}; {gone['reason']}", threshold=limits.relearning)
    text += f"; {100 * gone['value']:.0f}% of the way ({100 * gone['low']:.0f}% to {100 * gone['high']:.0f}%)"
    result = at_least(gone["low"], gone["high"], limits.relearning)
    return Check(
        "removed", claim, result, text + few(result), gone["value"], limits.relearning, gone["low"], gone["high"]
    )


def _with(missing: Sequence[str], measured: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the clients that are missing in the run or in one of the measurements."""
    return sorted({*missing, *(i for own in measured for i in own.get("missing", ()))})


def _gone(audit: Mapping[str, Any], measure: str, final: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = ((audit["way"] or {}).get(measure) or {}).get("models", {}).get(final)
    return found
