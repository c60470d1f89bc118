"""Style of figures: colours by role, shapes by meaning, and shared axes.

Nothing is told by colour alone: a phase has a mark of its own, a model and a run a mark and a dash.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fupareto.report.markup import clean
from fupareto.report.view import FAILED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

# On the page each colour becomes a CSS variable, so a dark page gets dark figures.
INK = "#1c2431"
MUTED = "#566273"
LINE = "#d5dbe3"
SHADE = "#eaf0f7"
PAPER = "#fffffe"
FORGET = "#b0420d"
RETAINED = "#1d5ca6"
NEUTRAL = "#4a5566"
TRUTH = "#1f7452"
VIOLET = "#7b3f98"
OCHRE = "#856404"
ROLES = {
    INK: "ink",
    MUTED: "muted",
    LINE: "line",
    SHADE: "shade",
    PAPER: "paper",
    FORGET: "forget",
    RETAINED: "retained",
    NEUTRAL: "neutral",
    TRUTH: "truth",
    VIOLET: "violet",
    OCHRE: "ochre",
}
WIDE, NARROW = 9.4, 4.3  # inches: a desk and a phone
WIDTHS = {"wide": WIDE, "narrow": NARROW}  # as the style sheet knows them
FONT = "DejaVu Sans"  # measured while laying out; wider than the fonts that pages use
DASHED = (0, (4, 3))

# phase: (matplotlib marker, the same shape as a character, size, colour in the plane)
MARKERS: dict[str, tuple[str, str, float, str]] = {
    "renew": ("v", "▼", 6.0, VIOLET),
    "improve": ("o", "●", 4.5, RETAINED),
    "expand": ("^", "▲", 6.0, FORGET),
    "recover": ("s", "■", 4.2, TRUTH),
    FAILED: ("x", "✕", 5.5, INK),
    "train": ("D", "◆", 4.0, NEUTRAL),
}
OTHER = ("P", "✚", 5.0, VIOLET)

# stage: (marker, dash, colour, filled)
MODELS: dict[str, tuple[str, Any, str, bool]] = {
    "initial": ("o", (0, (2, 1.5)), NEUTRAL, False),
    "unlearned": ("^", (0, (6, 2)), FORGET, True),
    "recovered": ("o", "-", RETAINED, True),
    "retrained": ("D", (0, (6, 2, 1, 2)), TRUTH, False),
    "retrained-2": ("d", (0, (1, 1)), TRUTH, False),
}

COLOURS = (RETAINED, FORGET, TRUTH, VIOLET, NEUTRAL, OCHRE)
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)))
SHAPES = "os^DvPX<>*ph8Hd"

FIRST_LINEAR = 0.01  # up to this value the axis of what is remembered is linear, then logarithmic
LOGARITHMIC = f"logarithmic above {FIRST_LINEAR:.0%}"

_SETTINGS: Any = {
    "font.family": [FONT],
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
def applied() -> Iterator[None]:
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


def settle(figure: "Figure") -> None:
    """Lay the figure out now and for good, so that places on it are known; drawing then lays it out no more."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def short(name: str, length: int) -> str:
    """A name that fits a figure; the tables hold it in full."""
    name = clean(name).replace("\n", " ")
    return name if len(name) <= length else name[: length - 1] + "…"


# Axes ------------------------------------------------------------------------------------------------------------


def _percentage(value: float, _: object) -> str:
    return f"{100 * value:.4g}%".replace("-", "−")


def percent_axis(axes: "Axes", which: str, low: float = 0.0, high: float = 1.0) -> None:
    """Fractions as percentages on the x or y axis."""
    from matplotlib.ticker import MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(_percentage)
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    axes.grid(axis="x" if which == "x" else "y")


def remembered_axis(axes: "Axes", which: str, low: float = -0.0012, high: float = 1.15, few: bool = False) -> None:
    """An axis for ASR, or forget accuracy: models differ where it is low, so low values get half of it."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("symlog", linthresh=FIRST_LINEAR)
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    ticks = [0, 0.005, 0.01, 0.05, 0.2, 1] if few else [0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(_percentage)
    axes.grid(axis="x" if which == "x" else "y")


def logarithmic_axis(axes: "Axes", values: Sequence[float]) -> None:
    """A logarithmic axis with a number at every power of ten, or at more where the values span less than two."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    near = max(values) < 100 * min(values)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if near else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def round_ticks(width: float) -> "MaxNLocator":
    """Whole, round numbers of rounds, as many as the width bears."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(8 if width == WIDE else 5, integer=True, steps=[1, 2, 5, 10])


def zoom(values: Sequence[float], least: float) -> tuple[float, float]:
    """Limits around fractions, at least `least` apart, within [0, 1] and a small margin."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    spare = max(0.08 * (high - low), (least - (high - low)) / 2)
    return max(-0.02, low - spare), min(1.02, high + spare)


def names_axis(axes: "Axes", names: Sequence[str]) -> None:
    """A row per name, the first one on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)


def nothing(axes: "Axes") -> None:
    """Say that a panel has nothing to show."""
    axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=MUTED)


def level(axes: "Axes", value: float | None) -> None:
    """A dashed line at a value to compare with."""
    if value is not None:
        axes.axhline(value, color=MUTED, linewidth=1, linestyle=DASHED, zorder=1)


# Marks -----------------------------------------------------------------------------------------------------------


def rank(phase: str) -> tuple[int, str]:
    """The order in which phases are listed: ours first, others by name."""
    return [*MARKERS, phase].index(phase), phase


def phase_mark(phase: str, colour: str | None = None) -> dict[str, Any]:
    """How a round is drawn that ended in this way; in a panel of one colour, in that colour."""
    marker, _, size, own = MARKERS.get(phase, OTHER)
    colour = colour or own
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": size,
        "markerfacecolor": colour,
        "markeredgecolor": INK if phase == FAILED else colour if marker in "xP" else PAPER,
        "markeredgewidth": 1.5 if phase == FAILED else 0.6,
    }


def phase_handles(phases: Sequence[str], coloured: bool = False) -> "list[Line2D]":
    """Entries of a legend that says what the marks of rounds mean."""
    from matplotlib.lines import Line2D

    handles = []
    for phase in sorted(phases, key=rank):
        name = "failed (no step)" if phase == FAILED else short(phase, 16)
        mark = phase_mark(phase, None if coloured else NEUTRAL)
        handles.append(Line2D([], [], **(mark | {"markersize": mark["markersize"] + 1}), label=name))
    return handles


def model_mark(stage: str) -> dict[str, Any]:
    """How a model is drawn wherever models are compared."""
    marker, dash, colour, filled = MODELS[stage]
    return {
        "color": colour,
        "marker": marker,
        "linestyle": dash,
        "markersize": 6,
        "markerfacecolor": colour if filled else PAPER,
    }


def run_mark(index: int) -> dict[str, Any]:
    """How the run or method at a place in a list is drawn; up to fifteen no two share a mark."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": SHAPES[index % len(SHAPES)],
    }
