"""Tally of check results: how many checks of an audit are shown, open and refuted.

summary.json, audit.json, certificates, reports and commands all state it; it is computed here only. This module imports
neither torch nor the audit.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

RESULTS = ("shown", "open", "refuted")
NO_CHECKS = "none made"
_SENTENCE = re.compile(rf"\s*Checks: (\d+ shown, \d+ open, \d+ refuted|{NO_CHECKS})\.")

Tally = dict[str, int]


def tally(checks: Iterable[Mapping[str, Any]]) -> Tally:
    """Count checks by result; a check whose result is unknown or missing counts as open.

    >>> tally([{"result": "shown"}, {"result": "refuted"}, {}])
    {'shown': 1, 'open': 1, 'refuted': 1}
    """
    found = dict.fromkeys(RESULTS, 0)
    for check in checks:
        result = check.get("result")
        found[result if result in found else "open"] += 1
    return found


def tally_of(summary: Mapping[str, Any], audit: Mapping[str, Any] | None = None) -> Tally | None:
    """Return a run's tally, or None where no checks were made.

    Args:
        summary: The content of summary.json; its ``checks`` is the tally.
        audit: The content of audit.json, for runs of earlier versions, whose summary has no tally.
    """
    held = summary.get("checks")
    if isinstance(held, Mapping) and all(type(held.get(result)) is int for result in RESULTS):
        return {result: held[result] for result in RESULTS}
    verdict = (audit or {}).get("verdict")
    made = verdict.get("checks") if isinstance(verdict, Mapping) else None
    found = [check for check in made if isinstance(check, Mapping)] if isinstance(made, list) else []
    return tally(found) if found else None


def words(found: Mapping[str, int] | None) -> str:
    """Return a tally in words.

    >>> words({"shown": 4, "open": 1, "refuted": 1})
    '4 shown, 1 open, 1 refuted'
    """
    return ", ".join(f"{found[result]} {result}" for result in RESULTS) if found else NO_CHECKS


def with_tally(text: str, found: Mapping[str, int] | None) -> str:
    """Return a verdict that ends with a sentence on the tally; an earlier such sentence is replaced.

    >>> with_tally("The backdoor works in 0.6% of all tries.", None)
    'The backdoor works in 0.6% of all tries. Checks: none made.'
    """
    return f"{without_tally(text)} Checks: {words(found)}.".lstrip()


def without_tally(text: str) -> str:
    """Return a verdict without the sentence on its tally."""
    return _SENTENCE.sub("", text)
