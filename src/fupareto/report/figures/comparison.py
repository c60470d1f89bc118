"""Figures that compare runs: stages of each run, and its measures by round."""

from typing import TYPE_CHECKING

from fupareto.report import style
from fupareto.report.markup import measured
from fupareto.report.view import STAGES, RunView, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40
MOST_CURVES = 6


def _rows(axes: "Axes", runs: list[RunView], keys: list[str], colour: str) -> list[float]:
    """One row per run: where it began, where forgetting took it, where it ended; return every value."""
    levels: list[float] = []
    for row, (run, key) in enumerate(zip(runs, keys, strict=True)):
        values = {stage: measured(run.value(stage, key)) for stage in run.stages}
        path = [value for value in values.values() if value is not None]
        levels += path
        axes.plot(path, [row] * len(path), color=style.LINE, linewidth=2.5, zorder=1, solid_capstyle="round")
        for stage, value in values.items():
            if value is not None:
                shape, filled = style.MODELS[stage][0], style.MODELS[stage][3]
                face = colour if filled else style.PAPER
                axes.plot(value, row, marker=shape, color=colour, markerfacecolor=face, markersize=7, zorder=2)
        if not path:
            axes.text(0.02, row, "not measured", color=style.MUTED, va="center")
    return levels


def _title(runs: list[RunView]) -> str:
    """What says how much is remembered; runs without a backdoor say it by accuracy."""
    return " or ".join(sorted({run.forgetting_title for run in runs}))


def from_to(runs: list[RunView], width: float) -> "Figure | None":
    """What every run remembered and how useful it was, at each of its stages."""
    runs = [run for run in runs if run.stages][:MOST_ROWS]
    if not runs:
        return None
    from matplotlib.lines import Line2D

    side_by_side = width == style.WIDE
    height = 0.36 * len(runs) + 0.9
    figure = style.canvas(width, 0.5 + (height if side_by_side else 2 * height))
    grid = figure.subplots(1, 2, sharey=True) if side_by_side else figure.subplots(2, 1)
    _rows(grid[0], runs, [run.forgetting for run in runs], style.FORGET)
    style.percent_axis(grid[0], "x", -0.03, 1.03)
    grid[0].set_title(f"{_title(runs)} (lower is better)")
    levels = _rows(grid[1], runs, ["r_acc"] * len(runs), style.RETAINED)
    style.percent_axis(grid[1], "x", *style.zoom(levels, 0.2))
    grid[1].set_title("R-Acc (higher is better)")
    for axes in grid:
        style.names_axis(axes, [style.short(run.name, 24 if side_by_side else 12) for run in runs])
    handles = []
    for stage in STAGES:
        mark = {"linestyle": "none", "color": style.NEUTRAL}
        mark["markerfacecolor"] = style.NEUTRAL if style.MODELS[stage][3] else style.PAPER
        handles.append(Line2D([], [], marker=style.MODELS[stage][0], label=stage, **mark))  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def curves(runs: list[RunView], width: float) -> "Figure | None":
    """What is remembered and R-Acc by round, one line per run; dash and mark tell the runs apart."""
    shown = [
        (place, run)
        for place, run in enumerate(runs)
        if any(series(run.history, key) for key in (run.forgetting, "r_acc"))
    ]
    if not shown or len(shown) > MOST_CURVES:
        return None
    figure = style.canvas(width, 6.0 if width == style.WIDE else 6.6)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, key in zip(panels, (None, "r_acc"), strict=True):
        levels = []
        for place, run in shown:
            line = series(run.history, key or run.forgetting)
            levels += [value for _, value in line]
            axes.plot(
                [x for x, _ in line],
                [y for _, y in line],
                linewidth=1.5,
                markersize=4.5,
                markevery=max(1, len(line) // 8),
                label=style.short(run.name, 26),
                **style.run_mark(place),
            )
        style.percent_axis(axes, "y", *((-0.02, 1.02) if key is None else style.zoom(levels, 0.2)))
        axes.set_title(f"{'R-Acc' if key else _title([run for _, run in shown])} by round")
    panels[1].set_xlabel("round")
    panels[1].xaxis.set_major_locator(style.round_ticks(width))
    handles = panels[0].get_lines()
    columns = 3 if width == style.WIDE else 1
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.5)
    return figure
