"""What was shown, what was refuted, and what is open? Checks against thresholds, and a paragraph in plain words.

A check is *shown* when the measurement supports it, *refuted* when it contradicts it, and *open* when nothing was
measured that could decide it, or too little. Nothing is ever concluded from a check that was not made.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fupareto.errors import UserError

FEWEST_ROUNDS = 4  # of relearning that a comparison takes


@dataclass(frozen=True)
class Thresholds:
    """Where a number is good enough; every one can be set."""

    asr: float = 0.05  # attack success rate of the worst forget client: half of guessing among ten classes
    forget_gap: float = 0.05  # accuracy on the forgotten data above (or below) that of a retrained model
    r_acc_loss: float = 0.02  # mean accuracy that retained clients may lose
    client_loss: float = 0.10  # accuracy that a single retained client may lose; its test set may be small
    leak: float = 0.10  # distance of a membership attack's AUC from 0.5, on either side
    relearning: float = 0.5  # rounds until the forgotten is back, as a share of a retrained model's
    divergence: float = 0.10  # bits between outputs on the forgotten data and a retrained model's

    def __post_init__(self) -> None:
        for key, value in dataclasses.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise UserError(f"the threshold {key} must lie between 0 and 1, not {value!r}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Thresholds":
        """Read thresholds by name."""
        known = [f.name for f in dataclasses.fields(cls)]
        if unknown := [key for key in options if key not in known]:
            raise UserError(f"there is no threshold {unknown[0]!r}; there are {', '.join(known)}")
        return cls(**options)


@dataclass(frozen=True)
class Check:
    """One question and what the measurement says to it."""

    name: str
    question: str
    result: str  # shown, refuted or open
    text: str
    value: float | None = None
    threshold: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def claim(self) -> str:
        """Return what is shown, refuted or open, as a statement."""
        return CLAIMS[self.name]

    def to_json(self) -> dict[str, Any]:
        """Return the check as audit.json has it."""
        return {**dataclasses.asdict(self), "claim": self.claim}


def checks(summary: Mapping[str, Any], audit: Mapping[str, Any], limits: Thresholds) -> list[Check]:
    """Return every check of the run's final model."""
    final, stages = summary["final"], summary["stages"]
    first, last = stages["initial"], stages[final]
    unheard = [i for i in summary["forget"] if i in summary["missing"]]
    found = [
        _marked(first, last, unheard, limits) if last["asr"] is not None else _known(last, audit, unheard, limits),
        _useful(first, last, limits),
        _exclusive(audit["exclusivity"], limits),
        _membership(audit["membership"].get(final, {}), limits),
        _alike(audit["truth"], final, limits),
        _relearning(audit["relearning"], final, limits),
    ]
    return [*found, _apart(audit["told_apart"], limits)] if audit["told_apart"] else found


def _judged(good: bool) -> str:
    return "shown" if good else "refuted"


def _marked(first: Mapping[str, Any], last: Mapping[str, Any], unheard: Sequence[str], limits: Thresholds) -> Check:
    name, question, worst = "forgotten", "Is the mark of every forgotten client gone?", last["asr_max"]
    text = f"the worst forget client's mark works in {_percent(worst)} of all tries"
    if unheard:
        return Check(name, question, "open", f"{', '.join(unheard)} did not answer when the model was measured", worst)
    if first["asr_max"] is None or first["asr_max"] <= limits.asr:
        text = "the initial model never learnt the mark, so its absence shows nothing"
        return Check(name, question, "open", text, worst, limits.asr)
    return Check(name, question, _judged(worst <= limits.asr), text, worst, limits.asr)


def _known(last: Mapping[str, Any], audit: Mapping[str, Any], unheard: Sequence[str], limits: Thresholds) -> Check:
    """Without a mark: a model that never saw the data may still be right on them, so only a retrained one tells."""
    name, question = "unknown", "Does the model know the forgotten data no better than one that never saw them?"
    if unheard:
        return Check(name, question, "open", f"{', '.join(unheard)} did not answer when the model was measured")
    if not audit["truth"] or last["forget_acc"] is None:
        return Check(
            name, question, "open", "there is no retrained model to compare accuracy on the forgotten data with"
        )
    gap = last["forget_acc"] - audit["truth"]["retrained"]["forget_acc"]
    text = f"accuracy on the forgotten data is {100 * gap:+.1f} points from a retrained model's"
    return Check(name, question, _judged(gap <= limits.forget_gap), text, gap, limits.forget_gap)


def _useful(first: Mapping[str, Any], last: Mapping[str, Any], limits: Thresholds) -> Check:
    name, question = "useful", "Is the model as useful as before to those who stay?"
    if first["r_acc"] is None or last["r_acc"] is None:
        return Check(name, question, "open", "no retained client has test data")
    change = last["r_acc"] - first["r_acc"]
    text = f"mean accuracy of the retained clients changed by {100 * change:+.1f} points"
    return Check(name, question, _judged(change >= -limits.r_acc_loss), text, change, -limits.r_acc_loss)


def _exclusive(found: Mapping[str, Any], limits: Thresholds) -> Check:
    name, question, worst = "exclusive", "Was nobody else harmed?", found["worst"]
    if worst is None:
        return Check(name, question, "open", "no retained client was measured before and after")
    text = f"the retained client that fared worst, {worst['client']}, changed by {100 * worst['change']:+.1f} points"
    return Check(
        name, question, _judged(worst["change"] >= -limits.client_loss), text, worst["change"], -limits.client_loss
    )


def _membership(stage: Mapping[str, Any], limits: Thresholds) -> Check:
    """Shown when every interval lies within the limits, refuted when one lies outside, open in between."""
    name, question = "private", "Can an attack not tell the forgotten samples from samples never seen?"
    results = [
        (i, attack, client["attacks"][attack])
        for i, client in stage.get("clients", {}).items()
        for attack in client["attacks"]
    ]
    if not results:
        return Check(name, question, "open", "no membership attack was made", threshold=limits.leak)
    i, attack, worst = max(results, key=lambda found: abs(found[2]["auc"] - 0.5))
    text = f"the attack that tells most is {attack} on client {i}, with an AUC of {worst['auc']:.3f}"
    text += f" ({worst['low']:.3f} to {worst['high']:.3f})"
    within = all(0.5 - limits.leak <= r["low"] and r["high"] <= 0.5 + limits.leak for _, _, r in results)
    outside = any(r["low"] > 0.5 + limits.leak or r["high"] < 0.5 - limits.leak for _, _, r in results)
    if not within and not outside:
        text += "; there are too few samples to say more"
    result = "shown" if within else "refuted" if outside else "open"
    return Check(name, question, result, text, worst["auc"], limits.leak, worst["low"], worst["high"])


def _alike(truth: Mapping[str, Any] | None, final: str, limits: Thresholds) -> Check:
    name, question = "alike", "Does it answer on the forgotten data as a retrained model does?"
    found = truth["stages"].get(final) if truth else None
    if not found or found["divergence"] is None:
        return Check(name, question, "open", "there is no retrained model to compare with", threshold=limits.divergence)
    text = f"outputs differ by {found['divergence']:.3f} bits, {_percent(found['disagreement'])} of answers disagree"
    good = found["divergence"] <= limits.divergence
    return Check(name, question, _judged(good), text, found["divergence"], limits.divergence)


def _relearning(found: Mapping[str, Any] | None, final: str, limits: Thresholds) -> Check:
    name, question = "removed", "Is the knowledge removed rather than hidden?"
    models = found["models"] if found else {}
    if not found or final not in models or "retrained" not in models:
        text = "relearning was not compared with a retrained model"
        return Check(name, question, "open", text, threshold=limits.relearning)
    never = found["limit"] + 1
    own, truth = ((models[m]["rounds"] if models[m]["rounds"] is not None else never) for m in (final, "retrained"))
    if truth < FEWEST_ROUNDS:
        text = f"even a retrained model learns the data in {_rounds(truth)}, too few to compare with"
        return Check(name, question, "open", text, threshold=limits.relearning)
    words = [_rounds(n) if n < never else f"more than {_rounds(found['limit'])}" for n in (own, truth)]
    text = f"training on the forgotten data brings them back in {words[0]}, with a retrained model in {words[1]}"
    return Check(name, question, _judged(own / truth >= limits.relearning), text, own / truth, limits.relearning)


def _apart(found: Mapping[str, Any], limits: Thresholds) -> Check:
    name, question = "unseen", "Can models that forgot the clients not be told from models that never saw them?"
    within = 0.5 - limits.leak <= found["low"] and found["high"] <= 0.5 + limits.leak
    outside = found["low"] > 0.5 + limits.leak or found["high"] < 0.5 - limits.leak
    text = f"over {found['with']} and {found['without']} shadow models they are told apart with an AUC of "
    text += f"{found['auc']:.3f} ({found['low']:.3f} to {found['high']:.3f})"
    result = "shown" if within else "refuted" if outside else "open"
    return Check(name, question, result, text, found["auc"], limits.leak, found["low"], found["high"])


CLAIMS = {
    "forgotten": "the mark of the forgotten clients is gone",
    "unknown": "the model knows the forgotten data no better than one that never saw them",
    "useful": "the model is as useful as before to those who stay",
    "exclusive": "nobody else was harmed",
    "private": "attacks cannot tell forgotten samples from samples never seen",
    "alike": "it answers on the forgotten data as a retrained model does",
    "removed": "the knowledge is removed rather than hidden",
    "unseen": "models that forgot cannot be told from models that never saw the clients",
}


CLOSING = "This holds for the measurements made here; none of them shows that anybody's data were deleted."


def paragraph(headline: str, found: Sequence[Check]) -> str:
    """Say what was and what was not shown; ``headline`` is what was measured, in a sentence or two."""
    text = headline
    for result, words in (("shown", "Shown"), ("refuted", "Refuted"), ("open", "Open")):
        if said := [f"{check.claim} ({check.text})" for check in found if check.result == result]:
            text += f" {words}: {'; '.join(said)}."
    return f"{text} {CLOSING}"


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _percent(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.1f}%"
