"""HTML markup: everything is escaped here, and numbers carry the key they come from."""

import html
import math
import re
from collections.abc import Callable
from typing import Any

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Safe(str):
    """Text that already is HTML; any other text is escaped when it meets a tag."""

    __slots__ = ()


def clean(value: object) -> str:
    """`value` as text, with what no XML or HTML document may hold replaced by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", str(value))


def escape(value: object) -> Safe:
    """`value` as HTML: itself if it is `Safe`, escaped otherwise."""
    return value if isinstance(value, Safe) else Safe(html.escape(clean(value), quote=True))


def join(*parts: object) -> Safe:
    """The parts one after the other; `None` is left out."""
    return Safe("".join(escape(part) for part in parts if part is not None))


def tag(name: str, *children: object, **attributes: object) -> Safe:
    """`tag("td", 3, class_="number")` is `<td class="number">3</td>`; a `None` attribute is left out."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{escape(value)}"')
    return Safe(f"<{' '.join(words)}>{join(*children)}</{name}>")


def names(ids: list[str], limit: int = 8) -> Safe:
    """Clients in a sentence: "3 and 7", or "3, 7, 9 and 12 more" past the limit."""
    shown = [tag("bdi", name) for name in ids[:limit]]
    if len(ids) > limit:
        shown.append(escape(f"{len(ids) - limit} more"))
    if len(shown) < 2:
        return join(*shown)
    return Safe(f"{', '.join(shown[:-1])} and {shown[-1]}")


def measured(value: object) -> float | None:
    """`value` if it is a finite number, otherwise `None`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def percent(value: float) -> str:
    """A fraction as a percentage with one decimal."""
    return f"{100 * value:.1f}%"


def points(value: float) -> str:
    """A difference of fractions in percentage points, always with its sign."""
    rounded = round(100 * value, 1)
    sign = "+" if rounded > 0 else "−" if rounded < 0 else "±"
    return f"{sign}{abs(rounded):.1f}"


def decimal(value: float) -> str:
    """Four significant digits, without an exponent where that is readable."""
    return f"{value:.4g}".replace("-", "−")


def count(value: float) -> str:
    """A whole number with thin spaces between thousands."""
    return f"{value:,.0f}".replace(",", "\u202f")


def duration(seconds: float) -> str:
    """Seconds, or minutes and hours where there are many."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(n_bytes: float) -> str:
    """Bytes in megabytes, or in the unit next to it when megabytes are too small or too large."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} B"
    unit, factor = ("kB", 1e3) if n_bytes < 1e5 else ("MB", 1e6) if n_bytes < 1e10 else ("GB", 1e9)
    return f"{n_bytes / factor:,.1f} {unit}".replace(",", "\u202f")


def score(value: float) -> str:
    """A number between 0 and 1 that is no share, such as an AUC."""
    return f"{value:.3f}".replace("-", "−")


def number(
    key: str | None,
    value: object,
    form: Callable[[float], str],
    name: str = "span",
    absent: str | None = None,
    **attributes: Any,
) -> Safe:
    """One number as an element: `data-key` is its place in `summary.json`, `data-value` the exact value.

    A number of the audit has a key that begins with `audit.`; the rest is its place in `audit.json`. `absent` is what
    stands where there is no number.
    """
    known = measured(value)
    nothing = tag("abbr", "–", title="not measured") if absent is None else tag("small", absent, class_="absent")
    shown: object = form(known) if known is not None else nothing
    exact = "" if known is None else repr(known)
    return tag(name, shown, data_key=key, data_value=exact if key else None, **attributes)


def interval(key: str, found: Any, form: Callable[[float], str] = score) -> Safe | None:
    """The interval of a number, "0.480–0.580"; `found` is the object at `key` that holds its ends `low` and `high`."""
    ends = [found.get(end) if isinstance(found, dict) else None for end in ("low", "high")]
    if measured(ends[0]) is None or measured(ends[1]) is None:
        return None
    first, last = (number(f"{key}.{end}", value, form) for end, value in zip(("low", "high"), ends, strict=True))
    return tag("small", first, " to " if form is points else "–", last, class_="interval")
