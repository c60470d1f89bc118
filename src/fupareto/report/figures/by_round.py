"""Figures by round: measures, phases and steps."""

from itertools import groupby
from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.markup import measured
from fupareto.report.view import ACTIVITY, FAILED, Points, RunView, outcome, positions, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MARKS = 80  # per phase and panel; more would hide the line


def thin(points: Points) -> Points:
    """At most `MOST_MARKS` of the points, evenly spread."""
    every = -(-len(points) // MOST_MARKS) or 1
    return points[::every]


def by_outcome(history: list[dict[str, Any]], values: dict[int, float]) -> dict[str, Points]:
    """The rounds that have a value, by what they did."""
    marks: dict[str, Points] = {}
    for place, record in zip(positions(history), history, strict=True):
        if place in values:
            marks.setdefault(outcome(record), []).append((place, values[place]))
    return marks


def _curve(axes: "Axes", history: list[dict[str, Any]], key: str, colour: str) -> None:
    """A line through the measured rounds, with a mark on each that says what the round did."""
    line = series(history, key)
    axes.plot([x for x, _ in line], [y for _, y in line], color=colour, linewidth=1.4, zorder=2)
    for phase, points in by_outcome(history, dict(line)).items():
        above = 4 if phase in (FAILED, "expand") else 3
        axes.plot(*zip(*thin(points), strict=True), **style.phase_mark(phase, colour), zorder=above)
    if not line:
        style.nothing(axes)


def _backdrop(panels: "list[Axes]", history: list[dict[str, Any]]) -> None:
    """A background for each stage's rounds; its name stands at an outer edge, where names never meet."""
    places = positions(history)
    spans: list[tuple[str, float, float]] = []
    for place, record in zip(places, history, strict=True):
        stage = str(record.get("stage", ""))
        if spans and spans[-1][0] == stage:
            spans[-1] = (stage, spans[-1][1], place + 0.5)
        else:
            spans.append((stage, spans[-1][2] if spans else place - 0.5, place + 0.5))
    for axes in panels:
        for stage, left, right in spans:
            if stage == "recovered":
                axes.axvspan(left, right, color=style.SHADE, linewidth=0, zorder=0)
                axes.axvline(left, color=style.MUTED, linewidth=0.8, linestyle=":", zorder=1)
        axes.set_xlim(spans[0][1], spans[-1][2])
    for index, (stage, _, _) in enumerate((spans[0], spans[-1])[: len(spans)]):
        label = style.short(ACTIVITY.get(stage, stage), 20)
        panels[0].annotate(
            f"{label} →" if index == 0 else f"{label} (shaded)" if stage == "recovered" else label,
            (index, 1),
            (0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right" if index else "left",
            color=style.MUTED,
        )


def _utility(axes: "Axes", run: RunView) -> bool:
    """The panel of R-Acc, with the worst client where that is known."""
    first, worst = measured(run.value("initial", "r_acc")), series(run.history, "r_acc_min")
    if worst:
        axes.plot(*zip(*worst, strict=True), color=style.RETAINED, linewidth=1.1, linestyle=":", zorder=2)
    _curve(axes, run.history, "r_acc", style.RETAINED)
    style.level(axes, first)
    levels = [value for _, value in series(run.history, "r_acc") + worst]
    style.percent_axis(axes, "y", *style.zoom(levels + ([first] if first is not None else []), 0.1))
    axes.set_title("R-Acc: accuracy of retained clients")
    return bool(worst)


def convergence(run: RunView, width: float) -> "Figure | None":
    """What is remembered, R-Acc and distance from the initial model by round."""
    if not any(series(run.history, key) for key in (run.forgetting, "r_acc", "distance")):
        return None
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    figure = style.canvas(width, 7.6 if width == style.WIDE else 7.8)
    panels = list(figure.subplots(3, 1, sharex=True))
    forgetting, utility, distance = panels
    _backdrop(panels, run.history)
    _curve(forgetting, run.history, run.forgetting, style.FORGET)
    style.level(forgetting, measured(run.value("initial", run.forgetting)))
    style.percent_axis(forgetting, "y", -0.02, 1.02)
    what = "how much is still remembered" if run.marked else "right on the forgotten data"
    forgetting.set_title(f"{run.forgetting_title}: {what}", pad=20)
    worst = _utility(utility, run)
    _curve(distance, run.history, "distance", style.NEUTRAL)
    distance.set_ylim(bottom=-0.03 * distance.get_ylim()[1])  # a mark at zero is seen whole
    distance.grid(axis="y")
    distance.yaxis.set_major_locator(MaxNLocator(5))
    distance.set_title("Distance from the initial model")
    distance.set_xlabel("round")
    distance.xaxis.set_major_locator(style.round_ticks(width))
    handles = style.phase_handles(list({outcome(record) for record in run.history}))
    handles.append(Line2D([], [], color=style.MUTED, linewidth=1, linestyle=style.DASHED, label="initial model"))
    if worst:
        handles.append(Line2D([], [], color=style.RETAINED, linewidth=1.1, linestyle=":", label="worst client"))
    figure.legend(handles=handles, loc="outside lower center", ncols=6 if width == style.WIDE else 2)
    return figure


# The search for a step -------------------------------------------------------------------------------------------


def _positive(value: object) -> float | None:
    known = measured(value)
    return known if known is not None and known > 0 else None


def _tried(record: dict[str, Any]) -> list[float]:
    return [step for step in map(_positive, record.get("tried") or []) if step is not None]


def _steps(axes: "Axes", history: list[dict[str, Any]]) -> None:
    """The accepted step of every round on a logarithmic axis, and a thin line over all that were tried."""
    places = positions(history)
    steps = {p: s for p, r in zip(places, history, strict=True) if (s := _positive(r.get("step"))) is not None}
    ranges: tuple[list[float], list[float]] = [], []
    for place, record in zip(places, history, strict=True):
        if tried := _tried(record):
            ranges[0].extend((place, place, place))
            ranges[1].extend((min(tried), max(tried), float("nan")))
            if outcome(record) == FAILED:
                steps[place] = min(tried)
    style.logarithmic_axis(axes, [value for value in (*ranges[1], *steps.values()) if value == value])
    axes.plot(*ranges, color=style.MUTED, linewidth=0.7, zorder=2)
    for phase, points in by_outcome(history, steps).items():
        axes.plot(*zip(*thin(points), strict=True), **style.phase_mark(phase), zorder=3)
    axes.grid(axis="y")
    axes.set_title("Steps tried and step accepted", pad=20)


def _phases(axes: "Axes", history: list[dict[str, Any]], kinds: list[str]) -> None:
    """A row per phase, filled where a round was of it."""
    rounds = list(zip(positions(history), map(outcome, history), strict=True))
    for phase, group in groupby(rounds, key=lambda pair: pair[1]):
        places = [place for place, _ in group]
        colour = style.MARKERS.get(phase, style.OTHER)[3]
        start, length = places[0] - 0.5, places[-1] - places[0] + 1
        axes.broken_barh([(start, length)], (kinds.index(phase) - 0.32, 0.64), facecolor=colour, linewidth=0)
    style.names_axis(axes, [style.short(kind, 10) for kind in kinds])
    axes.set_title("Phase of each round")


def search(run: RunView, width: float) -> "Figure | None":
    """The steps that rounds tried and accepted, and a timeline of their phases."""
    history = run.history
    kinds = sorted({outcome(record) for record in history}, key=style.rank)
    stepped = any(_positive(record.get("step")) or _tried(record) for record in history)
    if not stepped and len(kinds) < 2:
        return None
    from matplotlib.lines import Line2D

    rows = 0.9 + 0.27 * len(kinds)
    figure = style.canvas(width, rows + (3.9 if stepped else 0.4))
    sizes = [3.2, rows] if stepped else [rows]
    panels = list(figure.subplots(len(sizes), 1, sharex=True, squeeze=False, height_ratios=sizes)[:, 0])
    if stepped:
        _backdrop(panels, history)
        _steps(panels[0], history)
        handles = style.phase_handles(kinds, coloured=True)
        handles.append(Line2D([], [], color=style.MUTED, linewidth=0.7, label="steps tried"))
        figure.legend(handles=handles, loc="outside lower center", ncols=5 if width == style.WIDE else 2)
    _phases(panels[-1], history, kinds)
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(style.round_ticks(width))
    return figure
