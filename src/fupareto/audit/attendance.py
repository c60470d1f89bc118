"""Who answered in the rounds of a run, read from its records."""

from collections.abc import Mapping, Sequence
from typing import Any

FIRST_ANSWERS = "first_answers"  # key of a round's record: clients that gave their first usable answer in it


def answered(rounds: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the clients that gave a usable answer in some round."""
    return {i for record in rounds for i in record.get(FIRST_ANSWERS, ())}


def never_answered(rounds: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the clients that were asked and never gave a usable answer, with the last reason.

    Records that do not say who answered, as of earlier versions, tell of nobody.
    """
    heard = answered(rounds)
    missing = {i: str(why) for record in rounds for i, why in (record.get("missing") or {}).items()}
    return {i: why for i, why in missing.items() if i not in heard} if heard else {}
