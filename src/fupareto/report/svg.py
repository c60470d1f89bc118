"""How does a matplotlib figure become part of a page? As inline SVG in the page's colours."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from fupareto.report.markup import Safe, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

# Colours by role. On the page each becomes a CSS variable, so a dark page gets dark figures.
INK = "#1c2431"
MUTED = "#566273"
LINE = "#d5dbe3"
SHADE = "#eaf0f7"
PAPER = "#fffffe"
FORGET = "#b0420d"
RETAINED = "#1d5ca6"
NEUTRAL = "#4a5566"
ROLES = {
    INK: "ink",
    MUTED: "muted",
    LINE: "line",
    SHADE: "shade",
    PAPER: "paper",
    FORGET: "forget",
    RETAINED: "retained",
    NEUTRAL: "neutral",
}
WIDE, NARROW = 9.4, 4.3  # inches: a desk and a phone

_FONT = "DejaVu Sans"  # measured while laying out; wider than the fonts that pages use
_SETTINGS: Any = {
    "font.family": [_FONT],
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,
    "axes.facecolor": "none",
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.color": LINE,
    "ytick.labelcolor": MUTED,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fupareto",
}


@contextmanager
def style() -> Iterator[None]:
    """The look of every figure. A name in a script that the layout font lacks is no reason to warn."""
    import matplotlib

    with warnings.catch_warnings(), matplotlib.rc_context(_SETTINGS):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message=".*layout not applied.*")
        yield


def canvas(width: float, height: float) -> "Figure":
    """An empty figure of `width` by `height` inches that lays itself out."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.1), facecolor="none")


def percent_axis(axes: "Axes", which: str, low: float = 0.0, high: float = 1.0) -> None:
    """Fractions as percentages on the x or y axis."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol="%"))
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    axes.grid(axis="x" if which == "x" else "y")


def round_ticks(width: float) -> "MaxNLocator":
    """Whole, round numbers of rounds, as many as the width bears."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(8 if width == WIDE else 5, integer=True, steps=[1, 2, 5, 10])


def short(name: str, length: int) -> str:
    """A name that fits a figure; the tables hold it in full."""
    name = clean(name).replace("\n", " ")
    return name if len(name) <= length else name[: length - 1] + "…"


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def to_svg(figure: "Figure", prefix: str, title: str) -> Safe:
    """The figure as an `<svg>` element whose ids all start with `prefix`, so that several share a page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None}, facecolor="none")
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in root.iter():
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    colours = re.compile("|".join(ROLES))
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
                value = colours.sub(lambda hit: f"var(--{ROLES[hit[0]]}, {hit[0]})", value)
                value = value.replace(f"'{_FONT}'", "system-ui, sans-serif")
            element.set(_local(key), value)
    for gone in ("width", "height", "version"):
        root.attrib.pop(gone, None)
    root.attrib.update({"role": "img", "aria-label": clean(title), "xmlns": "http://www.w3.org/2000/svg"})
    heading = ElementTree.Element("title")
    heading.text = clean(title)
    root.insert(0, heading)
    return Safe(ElementTree.tostring(root, encoding="unicode"))
