"""A check, how intervals decide it, and the words that checks share.

A check is *shown* when its whole interval lies within the limit, *refuted* when its whole interval lies beyond it, and
*open* when the interval reaches across the limit, or when nothing was measured that could decide it. Intervals hold
with 95 % for all clients (and attacks) of a check together. Nothing is concluded from a check that was not made.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fupareto.audit import intervals


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


def at_most(low: float, high: float, limit: float) -> str:
    """Judge the claim that a number is at most ``limit`` by its interval."""
    return "shown" if high <= limit else "refuted" if low > limit else "open"


def at_least(low: float, high: float, limit: float) -> str:
    """Judge the claim that a number is at least ``limit`` by its interval."""
    return at_most(-high, -low, -limit)


def together(results: Sequence[str]) -> str:
    """Judge a claim on all of several by the judgement on each."""
    return "refuted" if "refuted" in results else "open" if "open" in results else "shown"


def mean(pairs: Sequence[intervals.Pair]) -> tuple[float, float, float]:
    """Return the mean change over clients and its interval."""
    low, high = intervals.mean_change(pairs)
    return sum(pair.after - pair.before for pair in pairs) / len(pairs), low, high


def unheard(clients: Sequence[str]) -> str:
    """Say who did not answer."""
    return f"{', '.join(clients)} did not answer when the model was measured"


def heard(check: Check, missing: Sequence[str]) -> Check:
    """Leave a check open that would be shown, where somebody whom its claim is about did not answer."""
    return undecided(check, unheard(missing) if missing else "")


def undecided(check: Check, why: str) -> Check:
    """Leave a check open that would be shown, where there is a reason why it shows nothing of some client."""
    if not why or check.result != "shown":
        return check
    return dataclasses.replace(check, result="open", text=f"{check.text}; {why}")


def few(result: str, what: str = "samples") -> str:
    """Say why a check is open."""
    return f"; there are too few {what} to say more" if result == "open" else ""


def signed(value: float) -> str:
    """Return a change in percentage points, without the unit."""
    return f"{100 * value:+.1f}"


def span(low: float, high: float) -> str:
    """Return an interval of changes in percentage points."""
    return f"{signed(low)} to {signed(high)}"
