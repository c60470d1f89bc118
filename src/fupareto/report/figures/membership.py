"""Figures of membership attacks: AUCs as a radar, or with intervals where clients are few.

Both directions from 0.5 are a leak, so the ring or line at 0.5 is what a model should lie on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.view import RunView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes

FEWEST = 3  # a radar of fewer axes has no area
MOST_AXES = 24
MOST_RUNS = 6  # polygons; more would hide each other
MOST_ROWS = 40
TOSS = "0.5: a coin toss"


@dataclass(frozen=True)
class Dot:
    """One AUC with its interval."""

    name: str
    mark: dict[str, Any]
    auc: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Shape:
    """One polygon of the radar; an axis may lack a value."""

    name: str
    mark: dict[str, Any]
    values: list[float | None]


def spokes(run: RunView) -> list[str]:
    """The clients that get an axis: all of them, or of many those that the final model tells most about."""
    found = run.attacked
    if len(found) <= MOST_AXES:
        return found
    told = sorted(found, key=lambda name: -abs((run.leak(run.final, name) or 0.5) - 0.5))[:MOST_AXES]
    return [name for name in found if name in told]


def _limits(values: list[float]) -> tuple[float, float]:
    """Tenths around the values and around 0.5."""
    low, high = min([0.44, *values]), max([0.56, *values])
    return max(0.0, math.floor(10 * low - 0.3) / 10), min(1.0, math.ceil(10 * high + 0.3) / 10)


def _radar(axes: "PolarAxes", names: Sequence[str], shapes: list[Shape]) -> None:
    """A polygon per model over an axis per client, with a heavy ring at 0.5."""
    angles = [2 * math.pi * place / len(names) for place in range(len(names))]
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    low, high = _limits([value for shape in shapes for value in shape.values if value is not None])
    axes.set_ylim(low, high)
    step = 10 if high - low > 0.3 else 20  # rings per unit
    rings = [tick / step for tick in range(round(step * low) + 1, round(step * high) + 1)]
    axes.set_yticks(rings, [""] * len(rings))
    behind = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.8}
    for ring in rings:
        where = math.pi / len(names), ring
        axes.text(*where, f"{ring:g}", size=8, color=style.MUTED, ha="center", va="center", bbox=behind, zorder=4)
    axes.set_xticks(angles, names)
    axes.tick_params(axis="x", labelcolor=style.INK, pad=3)
    for text, angle in zip(axes.get_xticklabels(), angles, strict=True):  # names stand outside, beside their axis
        across = math.sin(angle)
        text.set_horizontalalignment("left" if across > 0.1 else "right" if across < -0.1 else "center")
    axes.spines["polar"].set_color(style.LINE)
    for shape in shapes:
        values = [float("nan") if value is None else value for value in shape.values]
        axes.plot([*angles, angles[0]], [*values, values[0]], linewidth=1.4, zorder=3, **shape.mark)
    circle = [2 * math.pi * place / 90 for place in range(91)]
    axes.plot(circle, [0.5] * len(circle), color=style.INK, linewidth=2, zorder=2)


def _dots(axes: "Axes", dots: list[Dot], length: int) -> None:
    """A row per AUC with its interval, and the line at 0.5."""
    from matplotlib.ticker import MaxNLocator

    ends = [value for dot in dots for value in (dot.auc, dot.low, dot.high) if value is not None]
    for row, dot in enumerate(dots):
        if dot.low is not None and dot.high is not None:
            axes.plot([dot.low, dot.high], [row, row], color=dot.mark["color"], linewidth=1.6, zorder=2)
            axes.plot([dot.low, dot.high], [row, row], linestyle="none", marker="|", color=dot.mark["color"], zorder=2)
        if dot.auc is not None:
            axes.plot(dot.auc, row, zorder=3, **(dot.mark | {"linestyle": "none", "markersize": 7}))
        else:
            axes.text(0.5, row, " not measured", color=style.MUTED, va="center")
    style.names_axis(axes, [style.short(dot.name, length) for dot in dots])
    axes.set_xlim(*_limits(ends))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.axvline(0.5, color=style.INK, linewidth=2, zorder=1)
    axes.grid(axis="x")
    axes.set_xlabel(f"AUC ({TOSS})")


def _panels(width: float, rows: int) -> "tuple[Figure, PolarAxes, Axes]":
    """A radar and, beside it or below it, a panel of dots."""
    dots = 1.1 + 0.34 * rows
    if width == style.WIDE:
        figure = style.canvas(width, 5.4)
        grid = figure.add_gridspec(3, 2, width_ratios=(1.25, 1), height_ratios=(1, max(dots, 2.4), 1))
        radar, panel = figure.add_subplot(grid[:, 0], projection="polar"), figure.add_subplot(grid[1, 1])
    else:
        figure = style.canvas(width, 4.9 + dots)
        grid = figure.add_gridspec(2, 1, height_ratios=(4.0, dots))
        radar, panel = figure.add_subplot(grid[0], projection="polar"), figure.add_subplot(grid[1])
    return figure, radar, panel  # type: ignore[return-value]  # matplotlib's stubs know no projections


def _combined(width: float, names: list[str], shapes: list[Shape], dots: list[Dot]) -> "Figure":
    """The radar with the means and their intervals beside it, and one legend for both."""
    from matplotlib.lines import Line2D

    wide = width == style.WIDE
    figure, radar, panel = _panels(width, len(dots))
    _radar(radar, [style.short(name, 16 if wide else 8) for name in names], shapes)
    radar.set_title("AUC of every client", pad=16)
    _dots(panel, dots, 16 if wide else 12)
    panel.set_title("Mean of the clients")
    handles = [Line2D([], [], label=style.short(s.name, 26 if wide else 16), linewidth=1.4, **s.mark) for s in shapes]
    handles.append(Line2D([], [], color=style.INK, linewidth=2, label=TOSS))
    columns = (5 if len(handles) <= 5 else 4) if wide else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3)
    return figure


def _groups(run: RunView, width: float) -> "Figure":
    """Every model's AUC with its interval, client by client."""
    stages, names = run.models("membership"), run.attacked
    figure = style.canvas(width, 0.5 + len(names) * (0.6 + 0.3 * len(stages)))
    grid = figure.subplots(len(names), 1, squeeze=False, sharex=True)[:, 0]
    for axes, name in zip(grid, names, strict=True):
        dots = [
            Dot(s, style.model_mark(s), *(run.leak(s, name, key) for key in ("auc", "low", "high"))) for s in stages
        ]
        _dots(axes, dots, 12)
        axes.set_title(f"Client {style.short(run.shown(name), 30 if width == style.WIDE else 14)}")
        axes.label_outer()
    ends = [run.leak(stage, name, key) for name in names for stage in stages for key in ("auc", "low", "high")]
    grid[0].set_xlim(*_limits([end for end in ends if end is not None]))
    return figure


def membership(run: RunView, width: float) -> "Figure | None":
    """The headline attack on every client at every stage."""
    names, stages = spokes(run), run.models("membership")
    if not any(run.leak(stage, name) is not None for stage in stages for name in names):
        return None
    if len(names) < FEWEST:
        return _groups(run, width)
    shapes = [Shape(s, style.model_mark(s), [run.leak(s, name) for name in names]) for s in stages]
    dots = [Dot(s, style.model_mark(s), *(run.mean_leak(s, key) for key in ("auc", "low", "high"))) for s in stages]
    return _combined(width, [run.shown(name) for name in names], shapes, dots)


def membership_runs(runs: list[RunView], width: float) -> "Figure | None":
    """The headline attack on the final model of every run: a polygon each, or only means where that cannot be."""
    found = [(style.run_mark(place), run) for place, run in enumerate(runs) if run.mean_leak(run.final) is not None]
    if not found:
        return None
    dots = [
        Dot(run.name, mark, *(run.mean_leak(run.final, key) for key in ("auc", "low", "high"))) for mark, run in found
    ][:MOST_ROWS]
    names = spokes(found[0][1])
    alike = all(set(run.attacked) == set(found[0][1].attacked) for _, run in found)
    if alike and len(names) >= FEWEST and len(found) <= MOST_RUNS:
        shapes = [Shape(run.name, mark, [run.leak(run.final, name) for name in names]) for mark, run in found]
        return _combined(width, [found[0][1].shown(name) for name in names], shapes, dots)
    figure = style.canvas(width, 1.1 + 0.34 * len(dots))
    axes = figure.subplots()
    _dots(axes, dots, 24 if width == style.WIDE else 12)
    axes.set_title("Mean AUC of the forget clients")
    return figure
