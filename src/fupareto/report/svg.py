"""Export of matplotlib figures: inline SVG in the page's colours, or files for a paper."""

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from fupareto.report import style
from fupareto.report.markup import Safe, clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Any, float], "Figure | None"]  # what is drawn and a width in inches


def inline(draw: Draw, subject: Any, name: str, alt: str) -> Safe | None:
    """The figure drawn twice, for a desk and for a phone; the style sheet shows the one that fits."""
    parts = []
    for place, width in style.WIDTHS.items():
        with style.applied():
            figure = draw(subject, width)
            if figure is None:
                return None
            parts.append(f'<div class="{place}">{to_svg(figure, f"{name}-{place}", alt)}</div>')
    return Safe("".join(parts))


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def to_svg(figure: "Figure", prefix: str, title: str) -> Safe:
    """The figure as an `<svg>` element whose ids all start with `prefix`, so that several share a page."""
    buffer = io.BytesIO()
    style.settle(figure)
    figure.savefig(buffer, format="svg", metadata={"Date": None}, facecolor="none")
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in root.iter():
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    colours = re.compile("|".join(style.ROLES))
    for element in root.iter():
        element.tag = _local(element.tag)
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            if _local(key) == "id":
                value = f"{prefix}-{value}"
            elif _local(key) == "href":
                value = value.replace("#", f"#{prefix}-", 1)
            else:
                value = value.replace("url(#", f"url(#{prefix}-")
                value = colours.sub(lambda hit: f"var(--{style.ROLES[hit[0]]}, {hit[0]})", value)
                value = value.replace(f"'{style.FONT}'", "system-ui, sans-serif")
            element.set(_local(key), value)
    for gone in ("width", "height", "version"):
        root.attrib.pop(gone, None)
    root.attrib.update({"role": "img", "aria-label": clean(title), "xmlns": "http://www.w3.org/2000/svg"})
    heading = ElementTree.Element("title")
    heading.text = clean(title)
    root.insert(0, heading)
    return Safe(ElementTree.tostring(root, encoding="unicode"))


def to_files(figure: "Figure", name: str) -> dict[str, bytes]:
    """The figure as NAME.svg and NAME.png on white; the same bytes whenever it is made."""
    vector, pixels = io.BytesIO(), io.BytesIO()
    style.settle(figure)
    figure.savefig(vector, format="svg", metadata={"Date": None}, facecolor="white")
    figure.savefig(pixels, format="png", dpi=200, metadata={"Software": None}, facecolor="white")
    font = f"'{style.FONT}'".encode()  # with one beside it that every viewer has
    return {f"{name}.svg": vector.getvalue().replace(font, font + b", sans-serif"), f"{name}.png": pixels.getvalue()}
