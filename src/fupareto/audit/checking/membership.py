"""Checks of membership: every attack on every forget client, and models that are told apart.

Where there is a retrained model an attack is read against the same attack on it, on the same samples. What a model that
never saw a client gives away of it, because its samples are easier or harder than others, is no trace of training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fupareto.audit import intervals
from fupareto.audit.attacks.delta import NAME as DELTA
from fupareto.audit.attacks.roc import at_level
from fupareto.audit.checking.base import Check, at_least, at_most, few, together, undecided
from fupareto.audit.thresholds import Thresholds


@dataclass(frozen=True)
class _Judged:
    """One attack on one client, judged."""

    client: str
    attack: str
    result: str
    value: float
    ends: intervals.Ends
    leak: float  # by how much it tells members, for the choice of the strongest
    against: float | None  # AUC on a retrained model


def private(stage: Mapping[str, Any], forget: Sequence[str], limits: Thresholds) -> Check:
    """Check every attack on every client, by intervals that hold for all of them together.

    Args:
        stage: The attacks on a model, as audit.json has them.
        forget: The forget clients; one that was not attacked leaves the check open.
        limits: The thresholds.
    """
    found = [
        (i, attack, result)
        for i, client in stage.get("clients", {}).items()
        for attack, result in client["attacks"].items()
        if attack != DELTA or "against" in result  # without a retrained model it says nothing
    ]
    compared = any("against" in result for _, _, result in found)
    claim = limits.claim("against" if compared else "private")
    if not found:
        return Check("private", claim, "open", "no membership attack was made", threshold=limits.leak)
    level = intervals.simultaneous(len(found))
    judged = [_judge(*one, level, limits.leak) for one in found]
    result = together([j.result for j in judged])
    worst = max(judged, key=lambda j: (j.result == result, j.leak))
    text = f"of {len(found)} attacks, {worst.attack} on client {worst.client} decides, with an AUC of "
    if worst.against is None:
        text += f"{worst.value:.3f} ({worst.ends[0]:.3f} to {worst.ends[1]:.3f})"
    else:
        text += f"{worst.against + worst.value:.3f}, {worst.value:+.3f} from a retrained model's "
        text += f"({worst.ends[0]:+.3f} to {worst.ends[1]:+.3f})"
    check = Check("private", claim, result, text + few(result), worst.value, limits.leak, *worst.ends)
    return undecided(check, _not_attacked(forget, stage["clients"]))


def _not_attacked(forget: Sequence[str], attacked: Mapping[str, Any]) -> str:
    """Return which clients were not attacked, and why that can be; empty if all were."""
    others = [i for i in forget if i not in attacked]
    return f"{', '.join(others)} was not attacked, for want of an answer or of held-out data" if others else ""


def _judge(i: str, attack: str, found: Mapping[str, Any], level: float, leak: float) -> _Judged:
    """Judge one attack: against a retrained model where that was attacked too, else against 0.5."""
    other = found.get("against")
    if other is None:
        result, ends, told = _leaks(found, level, leak)
        return _Judged(i, attack, result, found["auc"], ends, told, None)
    half, value = intervals.z_value(level) * other["error"], other["difference"]
    ends = max(value - half, -1.0), min(value + half, 1.0)
    result, told = at_most(*ends, leak), value
    if not found.get("learned", False):
        result, told = together([result, at_least(*ends, -leak)]), abs(value)
    return _Judged(i, attack, result, value, ends, told, other["auc"])


def _leaks(found: Mapping[str, Any], level: float, leak: float) -> tuple[str, intervals.Ends, float]:
    """Judge one AUC: the result, its interval at a level, and by how much it tells members.

    An attack that is trained finds its own sign, so an AUC below 0.5 is chance and tells nothing. A score with a
    fixed sign tells members on either side of 0.5.
    """
    ends, above = at_level(found, level), found["auc"] - 0.5
    result = at_most(*ends, 0.5 + leak)
    if found.get("learned", False):
        return result, ends, above
    other = at_least(*ends, 0.5 - leak)
    return together([result, other]), ends, abs(above)


def apart(found: Mapping[str, Any], forget: Sequence[str], limits: Thresholds) -> Check:
    """Check that models that forgot cannot be told from models that never saw the clients, all of them."""
    result, ends, _ = _leaks(found, intervals.LEVEL, limits.leak)
    text = f"over {found['with']} and {found['without']} shadow models they are told apart with an AUC of "
    text += f"{found['auc']:.3f} ({ends[0]:.3f} to {ends[1]:.3f})"
    text += "; there are too few models to say more" if result == "open" else ""
    check = Check("unseen", limits.claim("unseen"), result, text, found["auc"], limits.leak, *ends)
    return undecided(check, _not_attacked(forget, found.get("clients", {})))
