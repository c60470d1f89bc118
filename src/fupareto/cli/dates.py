"""Dates of requests, as options of the command line name them."""

import re
from datetime import UTC, date, datetime, timedelta

from fupareto.errors import UserError


def today() -> date:
    """Return the day on which the command runs, in UTC."""
    return datetime.now(UTC).date()


def day(text: str, option: str) -> date:
    """Return the date that an option names.

    Args:
        text: Value of the option.
        option: Name of the option, for the message.
    """
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"{option} takes a date such as 2026-11-02, not {text!r}") from error


def deadline(text: str, received: date) -> date:
    """Return the deadline that ``--deadline`` names.

    Args:
        text: Value of the option: a date, or a number of days after arrival, such as 30d.
        received: Day of arrival.
    """
    days = re.fullmatch(r"(\d{1,4})d", text)
    try:
        return received + timedelta(days=int(days[1])) if days else date.fromisoformat(text)
    except OverflowError as error:
        raise UserError(f"{text} after {received} is past the last date of the calendar; check --received") from error
    except ValueError as error:
        raise UserError(
            f"--deadline takes a date such as 2026-11-02 or a number of days such as 30d, not {text!r}"
        ) from error
