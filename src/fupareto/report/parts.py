"""Parts of a page: titled sections, figures with captions, and tables that scroll on a phone."""

from collections.abc import Sequence

from fupareto.report import figures
from fupareto.report.markup import Safe, tag
from fupareto.report.view import RunView


def section(name: str, title: str, *content: object) -> Safe:
    """A titled part of the page."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")


def note(text: object) -> Safe:
    """A sentence in the place of something that is not there."""
    return tag("p", text, class_="note")


def figure(name: str, subject: RunView | list[RunView], caption: object, absent: str) -> Safe:
    """A figure with its caption, or a note in its place."""
    drawing = figures.inline(name, subject)
    if drawing is None:
        return note(absent)
    return tag("figure", drawing, tag("figcaption", caption), id=f"figure-{name}")


def table(
    heads: Sequence[object], rows: Sequence[Safe], label: str, kind: str = "", words: Sequence[int] = (0,)
) -> Safe:
    """A table in a box that scrolls; columns hold numbers except those at the places in `words`."""
    cells = [
        tag("th", head, scope="col", class_=None if place in words else "number") for place, head in enumerate(heads)
    ]
    content = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows), class_=f"plain {kind}".strip())
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def row(name: object, *cells: Safe | None) -> Safe:
    """A row of a table; its first cell says what it is about."""
    return tag("tr", tag("th", name, scope="row"), *cells)


def cell(*content: object) -> Safe:
    """A cell of a table that holds numbers."""
    return tag("td", *content, class_="number")
