"""Checks of forgetting: what the kept model still knows, and what it knows after further training."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from fupareto.audit import intervals
from fupareto.audit.checking.base import Check, at_most, few, mean, signed, span, together, undecided, unheard
from fupareto.audit.exclusivity import compared
from fupareto.audit.intervals import Pair
from fupareto.audit.thresholds import Thresholds, further_rounds, share
from fupareto.vocabulary import RETRAINED

RUINED = 0.5  # share of a model's accuracy below which further training has ruined it
MARGIN = 0.03  # by which a mark may work more often than from a retrained model
Rates = Mapping[str, tuple[float, int]]  # by client, with the number of tries
NOW: Mapping[str, str] = MappingProxyType({})


def forgotten(summary: Mapping[str, Any], audit: Mapping[str, Any], missing: list[str], limits: Thresholds) -> Check:
    """Check the model as it is: the mark, or without one the accuracy on the forgotten data."""
    first, last = summary["stages"]["initial"], summary["stages"][summary["final"]]
    if last["asr"] is None:
        return _known(last, audit, missing, limits)
    own = (audit["truth"] or {}).get(RETRAINED, {}).get("asr_max")
    limit = _limit(limits, own)
    claim, worst = limits.claim("forgotten", limit), last["asr_max"]
    if doubt := _undecidable(first, missing, limits):
        return Check("forgotten", claim, "open", doubt, worst, limit)
    rates = {
        i: (c["asr"], c.get("asr_samples") or 0)
        for i, c in last["clients"].items()
        if c["side"] == "forget" and c["asr"] is not None
    }
    return undecided(_marked("forgotten", claim, rates, limit, own), _unmarked(summary, limits))


def lasting(summary: Mapping[str, Any], audit: Mapping[str, Any], missing: list[str], limits: Thresholds) -> Check:
    """Check what comes back when the retained clients train on."""
    first, last, found = summary["stages"]["initial"], summary["stages"][summary["final"]], audit["dormancy"] or {}
    marked = last["asr"] is not None
    own = found.get("models", {}).get(summary["final"]) or {}
    if text := _not_trained_on(own, last["r_acc"], found.get("rounds")):
        claim = limits.claim("lasting" if marked else "lasting-unknown")
        return Check("lasting", claim, "open", text, threshold=limits.asr if marked else limits.forget_gap)
    missing = sorted({*missing, *own.get("missing", ()), *_unmeasured(summary, own, "asr" if marked else "accuracy")})
    truth = _survivor(audit, found)
    if not marked:
        return _known_later(own, truth, missing, limits, found["rounds"])
    base = max((c["value"] for c in truth.get("clients", {}).values()), default=None)
    limit = _limit(limits, base)
    claim = limits.claim("lasting", limit, found["rounds"])
    if doubt := _undecidable(first, missing, limits):
        return Check("lasting", claim, "open", doubt, own["worst"], limit)
    rates = {i: (c["value"], c["samples"] or 0) for i, c in own["clients"].items()}
    when = {i: f"after {further_rounds(c.get('round', own['worst_round']))}, " for i, c in own["clients"].items()}
    return undecided(_marked("lasting", claim, rates, limit, base, when), _unmarked(summary, limits))


def _survivor(audit: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the curve of the retrained model; empty where there is none, or further training has ruined it."""
    own = found["models"].get(RETRAINED) or {}
    useful = ((audit["truth"] or {}).get(RETRAINED) or {}).get("r_acc")
    return {} if _not_trained_on(own, useful, found["rounds"]) else own


def _unmarked(summary: Mapping[str, Any], limits: Thresholds) -> str:
    """Return of which forget clients a mark says nothing, since they have none or it was never learnt."""
    stages = summary["stages"]
    last, first = stages[summary["final"]]["clients"], stages["initial"]["clients"]
    none = [i for i in summary["forget"] if i in last and last[i]["asr"] is None]
    weak = [i for i in summary["forget"] if i in first and (first[i]["asr"] or 0.0) <= limits.asr and i not in none]
    said = [f"client {i} carries no mark" for i in none]
    return "; ".join(said + [f"the initial model never learnt the mark of client {i}" for i in weak])


def _not_trained_on(own: Mapping[str, Any], useful: float | None, rounds: Any) -> str:
    """Return why further training says nothing of a model: it did not take place, or ruined the model."""
    if own.get("idle"):
        return f"in {own['idle']} of {further_rounds(rounds)} no retained client trained the model on"
    if not own or own["worst"] is None:
        return "the retained clients did not train the model on; ask for it with --dormancy 40"
    after = own.get("r_acc")
    if after is not None and useful is not None and after < RUINED * useful:
        change = f"the accuracy of the retained clients falls from {share(useful)} to {share(after)}"
        return f"further training at the training's rate ruins the model, so what it then knows shows nothing: {change}"
    return ""


def _unmeasured(summary: Mapping[str, Any], own: Mapping[str, Any], measure: str) -> set[str]:
    """Return the forget clients that measured the kept model as it is, but not after further training."""
    last = summary["stages"][summary["final"]]["clients"]
    before = {i for i, c in last.items() if c["side"] == "forget" and c[measure] is not None}
    return before - set(own["clients"])


def _limit(limits: Thresholds, retrained: float | None) -> float:
    """Return how often a mark may work: the threshold, or a little more often than from a retrained model."""
    return max(limits.asr, 0.0 if retrained is None else retrained + MARGIN)


def _undecidable(first: Mapping[str, Any], missing: list[str], limits: Thresholds) -> str:
    if missing:
        return unheard(missing)
    if first["asr_max"] is None or first["asr_max"] <= limits.asr:
        return "the initial model never learnt the mark, so its absence shows nothing"
    return ""


def _marked(
    name: str, claim: str, rates: Rates, limit: float, baseline: float | None, when: Mapping[str, str] = NOW
) -> Check:
    """Check the attack success rate of every forget client, by exact intervals; ``when`` says when it was measured."""
    level = intervals.simultaneous(len(rates))
    ends = {i: intervals.exact(round(rate * n), n, level) for i, (rate, n) in rates.items()}
    results = {i: at_most(*ends[i], limit) for i in ends}
    result = together(list(results.values()))
    i = max(rates, key=lambda i: (results[i] == result, ends[i][0], ends[i][1]))
    rate, tries = rates[i]
    text = f"{when.get(i, '')}the mark of client {i} works in {share(rate)} of {tries or 'an unknown number of'} tries"
    text += f" ({share(ends[i][0])} to {share(ends[i][1])})"
    text += "" if baseline is None else f"; from a retrained model in up to {share(baseline)}"
    return Check(name, claim, result, text + few(result, "tries"), rate, limit, *ends[i])


def _known(last: Mapping[str, Any], audit: Mapping[str, Any], missing: list[str], limits: Thresholds) -> Check:
    """Check accuracy on the forgotten data where there is no mark: against a model that never saw them."""
    pairs = compared(audit["truth"][RETRAINED], last, "forget") if audit["truth"] else {}
    measured = [i for i, c in last["clients"].items() if c["side"] == "forget"]
    return _gap("unknown", limits.claim("unknown"), pairs, _lacking(missing, measured, pairs), limits)


def _known_later(
    own: Mapping[str, Any], truth: Mapping[str, Any], missing: list[str], limits: Thresholds, rounds: int
) -> Check:
    """Check the same after further training; every client of both models at its worst round."""
    other = truth.get("clients", {})
    pairs = {
        i: Pair(other[i]["value"], c["value"], min(c["samples"] or 0, other[i]["samples"] or 0))
        for i, c in own["clients"].items()
        if i in other
    }
    claim = limits.claim("lasting-unknown", rounds=rounds)
    return _gap("lasting", claim, pairs, _lacking(missing, own["clients"], pairs), limits)


def _lacking(missing: list[str], measured: Iterable[str], pairs: Mapping[str, Pair]) -> list[str]:
    """Return who is missing in the run, or measured this model but not the one that it is compared with."""
    return sorted({*missing, *(set(measured) - set(pairs) if pairs else ())})


def _gap(name: str, claim: str, pairs: Mapping[str, Pair], missing: list[str], limits: Thresholds) -> Check:
    if missing:
        return Check(name, claim, "open", unheard(missing), threshold=limits.forget_gap)
    if not pairs:
        text = "there is no retrained model to compare accuracy on the forgotten data with"
        return Check(name, claim, "open", text, threshold=limits.forget_gap)
    gap, low, high = mean(list(pairs.values()))
    text = f"accuracy on the forgotten data is {signed(gap)} points from a retrained model's ({span(low, high)})"
    result = at_most(low, high, limits.forget_gap)
    return Check(name, claim, result, text + few(result), gap, limits.forget_gap, low, high)
