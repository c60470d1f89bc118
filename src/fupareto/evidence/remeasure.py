"""Comparison of a repeated audit with the certified one, number by number, within a tolerance."""

import math
import reprlib
from collections.abc import Mapping
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding, pairs

TOLERANCE = 0.005
WHOLE = {"tier", "stages", "way", "verdict"}  # parts of an audit that depend on all that it measured
UNSTABLE = {"created", "seconds", "versions", "text"}  # differ whenever, and wherever, an audit is made


def compare(
    certificate: Mapping[str, Any],
    summary: Mapping[str, Any],
    audit: Mapping[str, Any] | None = None,
    tolerance: float = TOLERANCE,
) -> list[Finding]:
    """Compare a summary, and an audit, that were made again with those that are certified.

    The same machine gives the same bits. On another one, a sum in another order may move a sample across a decision
    boundary, so fractions may differ by ``tolerance`` (numbers beyond 1 by that share of themselves); whole numbers,
    words and the results of checks may not differ. What one of the two did not measure is not checked.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise UserError(f"the tolerance must be a number from 0 on, such as {TOLERANCE}, not {tolerance}")
    held = certificate["audit"]
    if held is not None and audit is not None and held.get("format") != audit.get("format"):
        both = _measured(certificate["summary"]), _measured(summary)
        return [*_compare("summary", both[0], both[1], tolerance), _other(held, audit)]
    if held is not None and audit is not None and (less := _less(held, audit)):
        one, other = ({key: part[key] for key in part if key not in WHOLE} for part in (held, audit))
        both = _measured(certificate["summary"]), _measured(summary)
        return [*_compare("summary", *both, tolerance), *_compare("audit", one, other, tolerance), less]
    found = _compare("summary", certificate["summary"], summary, tolerance)
    if held is not None or audit is not None:
        found += _compare("audit", certificate["audit"], audit, tolerance)
    return found


def _less(held: Mapping[str, Any], audit: Mapping[str, Any]) -> Finding | None:
    """Say of which certified parts an audit was made again without, so that its checks cannot be compared."""
    told = [f"the attacks of tier {held['tier']}"] if held.get("tier", 1) > audit.get("tier", 1) else []
    told += [f"the {stage} model" for stage in held.get("stages", ()) if stage not in audit.get("stages", ())]
    told += ["further training"] if held.get("dormancy") and not audit.get("dormancy") else []
    if not told:
        return None
    text = f"The checks were not made again: the audit was repeated without {', '.join(told)}."
    return Finding(NOT_CHECKED, "audit.verdict", text)


def _measured(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary without the tally of the audit's checks."""
    return {key: value for key, value in summary.items() if key != "checks"}


def _other(held: Mapping[str, Any], audit: Mapping[str, Any]) -> Finding:
    """Say that an audit of another format cannot be repeated here, and what can be done."""
    return Finding(
        NOT_CHECKED,
        "audit",
        f"audit: format {held.get('format')} is certified, and this version of fupareto makes format "
        f"{audit.get('format')}, with other measurements. To repeat the audit, use the version that made it (versions "
        "in the certificate's summary); to replace it, move the certificate away, and run fupareto audit and certify.",
    )


def _compare(part: str, certified: Any, again: Any, tolerance: float) -> list[Finding]:
    found, count, exact = [], 0, 0
    for at, one, other in pairs(_stable(certified), _stable(again), part):
        if one is None and other is None:
            continue
        count += 1
        if type(one) is type(other) and one == other:
            exact += 1
            continue
        both = f"{at}: {_short(one)} is certified, {_short(other)} was measured now"
        if one is None:
            found.append(Finding(NOT_CHECKED, at, f"{at} is not certified, so there is nothing to compare with."))
        elif other is None:
            found.append(Finding(NOT_CHECKED, at, f"{at} was not measured again."))
        elif _near(one, other, tolerance):
            found.append(Finding(OK, at, f"{both}, within the tolerance of {tolerance:g}."))
        else:
            found.append(Finding(FAILED, at, f"{both}."))
    if exact:
        what = f"All {count}" if exact == count else f"{exact} of {count}"
        found.insert(0, Finding(OK, part, f"{what} values of the {part} came out exactly as certified."))
    return found


def _stable(value: Any) -> Any:
    """Leave out what cannot be the same again: times, versions, and sentences, which repeat the numbers."""
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if k not in UNSTABLE and not (k == "verdict" and isinstance(v, str))}
        return {str(k): _stable(v) for k, v in kept.items()}
    return [_stable(v) for v in value] if isinstance(value, list | tuple) else value


def _near(one: Any, other: Any, tolerance: float) -> bool:
    kinds = {type(one), type(other)}
    if not kinds <= {int, float} or kinds == {int}:
        return False
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)


def _short(value: Any) -> str:
    return reprlib.repr(value)
