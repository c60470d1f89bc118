"""Checks of an audit against thresholds, and the verdict made of them.

A check is *shown* when its whole interval lies within the limit, *refuted* when its whole interval lies beyond it, and
*open* when the interval reaches across the limit, or when nothing was measured that could decide it. Intervals hold
with 95 % for all clients (and attacks) of a check together. Nothing is concluded from a check that was not made.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fupareto import tally
from fupareto.audit import intervals
from fupareto.audit.attacks.roc import at_level
from fupareto.audit.exclusivity import compared
from fupareto.audit.thresholds import Thresholds as Thresholds
from fupareto.audit.thresholds import share

FEWEST_ROUNDS = 4  # of relearning that a comparison takes


@dataclass(frozen=True)
class Check:
    """One claim and what the measurements say to it.

    Attributes:
        name: Name of the check, as ``Thresholds.claim`` knows it.
        claim: What was tested, with its limit.
        result: "shown", "refuted" or "open".
        text: What was measured, in words.
        value: What was measured; for the worst client where there are several.
        threshold: The limit.
        low: Lower end of the interval of ``value``.
        high: Upper end of it.
    """

    name: str
    claim: str
    result: str
    text: str
    value: float | None = None
    threshold: float | None = None
    low: float | None = None
    high: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the check as audit.json has it; ``question`` repeats the claim for readers of earlier versions."""
        return {**dataclasses.asdict(self), "question": self.claim}


def checks(summary: Mapping[str, Any], audit: Mapping[str, Any], limits: Thresholds) -> list[Check]:
    """Return every check of the run's final model."""
    final, stages = summary["final"], summary["stages"]
    first, last = stages["initial"], stages[final]
    missing = {side: [i for i in summary["missing"] if (i in summary["forget"]) == side] for side in (True, False)}
    marked = last["asr"] is not None
    found = [
        (_marked if marked else _known)(first, last, audit, missing[True], limits),
        _useful(first, last, limits),
        _exclusive(audit["exclusivity"]["clients"], missing[False], limits),
        _membership(audit["membership"].get(final, {}), limits),
        _alike(audit["truth"], final, limits),
        _relearning(audit["relearning"], final, limits),
    ]
    return [*found, _apart(audit["told_apart"], limits)] if audit["told_apart"] else found


def _at_most(low: float, high: float, limit: float) -> str:
    """Judge the claim that a number is at most ``limit`` by its interval."""
    return "shown" if high <= limit else "refuted" if low > limit else "open"


def _at_least(low: float, high: float, limit: float) -> str:
    return _at_most(-high, -low, -limit)


def _together(results: Sequence[str]) -> str:
    """Judge a claim on all of several by the judgement on each."""
    return "refuted" if "refuted" in results else "open" if "open" in results else "shown"


# Forgetting ------------------------------------------------------------------------------------------------------


def _marked(first: Mapping[str, Any], last: Mapping[str, Any], _: Any, missing: list[str], limits: Thresholds) -> Check:
    """Check the attack success rate of every forget client, by exact intervals."""
    claim, worst = limits.claim("forgotten"), last["asr_max"]
    if missing:
        return Check("forgotten", claim, "open", _unheard(missing), worst, limits.asr)
    if first["asr_max"] is None or first["asr_max"] <= limits.asr:
        text = "the initial model never learnt the mark, so its absence shows nothing"
        return Check("forgotten", claim, "open", text, worst, limits.asr)
    rates = {
        i: (c["asr"], c.get("asr_samples") or 0)
        for i, c in last["clients"].items()
        if c["side"] == "forget" and c["asr"] is not None
    }
    level = intervals.simultaneous(len(rates))
    ends = {i: intervals.exact(round(rate * n), n, level) for i, (rate, n) in rates.items()}
    results = {i: _at_most(*ends[i], limits.asr) for i in ends}
    result = _together(list(results.values()))
    i = max(rates, key=lambda i: (results[i] == "refuted", ends[i][0], ends[i][1]))
    text = f"the mark of client {i} works in {share(rates[i][0])} of {_tries(rates[i][1])}"
    text += f" ({share(ends[i][0])} to {share(ends[i][1])})"
    return Check("forgotten", claim, result, text + _few(result, "tries"), rates[i][0], limits.asr, *ends[i])


def _known(_: Any, last: Mapping[str, Any], audit: Mapping[str, Any], missing: list[str], limits: Thresholds) -> Check:
    """Check accuracy on the forgotten data where there is no mark: against a model that never saw them."""
    claim = limits.claim("unknown")
    if missing:
        return Check("unknown", claim, "open", _unheard(missing), threshold=limits.forget_gap)
    pairs = list(compared(audit["truth"]["retrained"], last, "forget").values()) if audit["truth"] else []
    if not pairs:
        text = "there is no retrained model to compare accuracy on the forgotten data with"
        return Check("unknown", claim, "open", text, threshold=limits.forget_gap)
    gap, low, high = _mean(pairs)
    text = f"accuracy on the forgotten data is {_signed(gap)} points from a retrained model's ({_range(low, high)})"
    result = _at_most(low, high, limits.forget_gap)
    return Check("unknown", claim, result, text + _few(result), gap, limits.forget_gap, low, high)


# Retained clients ------------------------------------------------------------------------------------------------


def _useful(first: Mapping[str, Any], last: Mapping[str, Any], limits: Thresholds) -> Check:
    claim, pairs = limits.claim("useful"), list(compared(first, last, "retained").values())
    if not pairs:
        text = "no retained client with test data was measured before and after"
        return Check("useful", claim, "open", text, threshold=-limits.r_acc_loss)
    moved, low, high = _mean(pairs)
    text = f"mean accuracy of the retained clients changed by {_signed(moved)} points ({_range(low, high)}; "
    text += f"{sum(pair.samples for pair in pairs)} test samples)"
    result = _at_least(low, high, -limits.r_acc_loss)
    return Check("useful", claim, result, text + _few(result), moved, -limits.r_acc_loss, low, high)


def _exclusive(clients: Mapping[str, Any], missing: list[str], limits: Thresholds) -> Check:
    """Check every retained client's change by the simultaneous intervals of ``exclusivity``."""
    claim, limit = limits.claim("exclusive"), -limits.client_loss
    if not clients:
        text = "no retained client with test data was measured before and after"
        return Check("exclusive", claim, "open", text, threshold=limit)
    ends: dict[str, intervals.Ends] = {
        i: (-1.0, 1.0) if c["low"] is None else (c["low"], c["high"]) for i, c in clients.items()
    }
    results = {i: _at_least(*ends[i], limit) for i in clients}
    result = _together([*results.values(), *("open" for _ in missing)])
    i = min(clients, key=lambda i: (results[i] != "refuted", clients[i]["change"], ends[i][0]))
    text = f"the largest loss is that of client {i}, whose accuracy changed by {_signed(clients[i]['change'])} points "
    text += f"({_range(*ends[i])}; {clients[i]['samples'] or 'unknown'} test samples)"
    undecided = sum(r == "open" for r in results.values())
    if undecided and result == "open":
        text += f"; a larger loss than the limit cannot be ruled out for {undecided} of {len(clients)} clients, "
        text += "which have too few test samples"
    text += f"; {_unheard(missing)}" if missing else ""
    return Check("exclusive", claim, result, text, clients[i]["change"], limit, *ends[i])


# Membership ------------------------------------------------------------------------------------------------------


def _membership(stage: Mapping[str, Any], limits: Thresholds) -> Check:
    """Check every attack on every client, by intervals that hold for all of them together."""
    claim = limits.claim("private")
    found = [
        (i, attack, result)
        for i, client in stage.get("clients", {}).items()
        for attack, result in client["attacks"].items()
    ]
    if not found:
        return Check("private", claim, "open", "no membership attack was made", threshold=limits.leak)
    level = intervals.simultaneous(len(found))
    judged = [(*_leaks(result, level, limits.leak), i, attack, result["auc"]) for i, attack, result in found]
    result = _together([r for r, *_ in judged])
    _, ends, _, i, attack, auc = max(judged, key=lambda j: (j[0] == "refuted", j[2]))
    text = f"the strongest of {len(found)} attacks is {attack} on client {i}, with an AUC of {auc:.3f} "
    text += f"({ends[0]:.3f} to {ends[1]:.3f})" + _few(result)
    return Check("private", claim, result, text, auc, limits.leak, *ends)


def _leaks(found: Mapping[str, Any], level: float, leak: float) -> tuple[str, intervals.Ends, float]:
    """Judge one AUC: the result, its interval at a level, and by how much it tells members.

    An attack that is trained finds its own sign, so an AUC below 0.5 is chance and tells nothing. A score with a
    fixed sign tells members on either side of 0.5.
    """
    ends, above = at_level(found, level), found["auc"] - 0.5
    result = _at_most(*ends, 0.5 + leak)
    if found.get("learned", False):
        return result, ends, above
    other = _at_least(*ends, 0.5 - leak)
    return _together([result, other]), ends, abs(above)


def _apart(found: Mapping[str, Any], limits: Thresholds) -> Check:
    result, ends, _ = _leaks(found, intervals.LEVEL, limits.leak)
    text = f"over {found['with']} and {found['without']} shadow models they are told apart with an AUC of "
    text += f"{found['auc']:.3f} ({ends[0]:.3f} to {ends[1]:.3f})"
    text += "; there are too few models to say more" if result == "open" else ""
    return Check("unseen", limits.claim("unseen"), result, text, found["auc"], limits.leak, *ends)


# Against a retrained model ---------------------------------------------------------------------------------------


def _alike(truth: Mapping[str, Any] | None, final: str, limits: Thresholds) -> Check:
    claim = limits.claim("alike")
    found = truth["stages"].get(final) if truth else None
    if not found or found["divergence"] is None:
        text = "there is no retrained model to compare with"
        return Check("alike", claim, "open", text, threshold=limits.divergence)
    bits = found["divergence"]
    text = f"outputs differ by {bits:.3f} bits, {share(found['disagreement'])} of answers disagree"
    return Check("alike", claim, _at_most(bits, bits, limits.divergence), text, bits, limits.divergence)


def _relearning(found: Mapping[str, Any] | None, final: str, limits: Thresholds) -> Check:
    claim, models = limits.claim("removed"), found["models"] if found else {}
    if not found or final not in models or "retrained" not in models:
        text = "relearning was not compared with a retrained model"
        return Check("removed", claim, "open", text, threshold=limits.relearning)
    never = found["limit"] + 1
    own, truth = ((models[m]["rounds"] if models[m]["rounds"] is not None else never) for m in (final, "retrained"))
    if truth < FEWEST_ROUNDS:
        text = f"even a retrained model learns the data in {_rounds(truth)}, too few to compare with"
        return Check("removed", claim, "open", text, threshold=limits.relearning)
    words = [_rounds(n) if n < never else f"more than {_rounds(found['limit'])}" for n in (own, truth)]
    text = f"this model relearns the forgotten data in {words[0]}, a retrained model in {words[1]}"
    ratio = own / truth
    return Check("removed", claim, _at_least(ratio, ratio, limits.relearning), text, ratio, limits.relearning)


# Words -----------------------------------------------------------------------------------------------------------

CLOSING = "This holds for the measurements made here; none of them shows that anybody's data were deleted."


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


def _mean(pairs: Sequence[intervals.Pair]) -> tuple[float, float, float]:
    """Return the mean change over clients and its interval."""
    low, high = intervals.mean_change(pairs)
    return sum(pair.after - pair.before for pair in pairs) / len(pairs), low, high


def _unheard(clients: Sequence[str]) -> str:
    return f"{', '.join(clients)} did not answer when the model was measured"


def _few(result: str, what: str = "samples") -> str:
    return f"; there are too few {what} to say more" if result == "open" else ""


def _tries(count: int) -> str:
    return f"{count or 'an unknown number of'} tries"


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}"


def _range(low: float, high: float) -> str:
    return f"{_signed(low)} to {_signed(high)}"
