"""Trajectories in the plane of forgetting and usefulness.

The first figure of the FUPareto paper shows the idea with loss functions; this one shows what was measured. Up and to
the left is better: improvements lead there, and expansions lead left where no step suits everyone any more.
"""

import math
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.labels import Place, between, label
from fupareto.report.markup import measured
from fupareto.report.view import FAILED, RETRAINED, RunView, outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_RUNS = 6  # more would hide each other
WIDE_SPAN = 20.0  # from this ratio of the largest to the smallest value on, the axis is logarithmic
ARROW = 24.0  # points: a way shorter than this bears no arrow


@dataclass(frozen=True)
class Track:
    """A run's way through the plane; where it starts is not known for every run."""

    start: Place | None
    rounds: list[tuple[str, Place]]  # what the round did, where it led
    truth: Place | None

    @property
    def way(self) -> list[Place]:
        """Every place in order."""
        return ([self.start] if self.start else []) + [place for _, place in self.rounds]


def track(run: RunView, key: str | None = None) -> Track:
    """A run's measured rounds as places; `key` says what is remembered, by default as the run knows it."""
    key = key or run.forgetting

    def place(values: object) -> Place | None:
        found = values if isinstance(values, dict) else {}
        x, y = measured(found.get(key)), measured(found.get("r_acc"))
        return (x, y) if x is not None and y is not None else None

    rounds = [(outcome(record), spot) for record in run.history if (spot := place(record)) is not None]
    return Track(place(run.stages.get("initial")), rounds, place(run.audited("truth", RETRAINED)))


def _axes(axes: "Axes", places: list[Place], title: str, width: float) -> None:
    """Axes around the places; what is remembered gets a logarithmic one where it spans much."""
    xs, ys = [x for x, _ in places], [y for _, y in places]
    logarithmic = max(xs) > WIDE_SPAN * max(min(xs), 0.001)
    if logarithmic:
        low = -0.0012 if min(xs) < 0.004 else 0.7 * min(xs)
        style.remembered_axis(axes, "x", low, min(1.15, 1.5 * max(xs)), few=width != style.WIDE)
    else:
        style.percent_axis(axes, "x", *style.zoom(xs, 0.03))
    style.percent_axis(axes, "y", *style.zoom(ys, 0.03))
    axes.set_xlabel(f"{title} (lower is better{f'; {style.LOGARITHMIC}' if logarithmic else ''})")
    axes.set_ylabel("R-Acc (higher is better)")
    axes.set_title("Better is up and to the left")


def _arrows(axes: "Axes", way: list[tuple[str, Place, Place]]) -> None:
    """A head in the middle of every long step of the way, so that its direction is seen."""
    per_point = axes.figure.dpi / 72
    back = axes.transData.inverted()
    for colour, start, end in way:
        first, last = (axes.transData.transform(spot) for spot in (start, end))
        length = math.dist(first, last) / per_point
        if length < ARROW:
            continue
        tail, tip = (tuple(back.transform(first + (0.5 + off / length) * (last - first))) for off in (-4, 4))
        head = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}
        axes.annotate("", tip, tail, arrowprops=head, zorder=2)


def _way(axes: "Axes", own: Track) -> list[tuple[str, Place, Place]]:
    """Draw a run's way in the colours of its phases; return its steps."""
    led = ["start"] * bool(own.start) + [phase for phase, _ in own.rounds]
    steps = []
    for (_, before), (phase, after) in pairwise(zip(led, own.way, strict=True)):
        if before != after:
            steps.append((style.MARKERS.get(phase, style.OTHER)[3], before, after))
    for colour, before, after in steps:
        axes.plot(*zip(before, after, strict=True), color=colour, linewidth=1.2, zorder=1)
    marks: dict[str, dict[Place, None]] = {}
    for phase, place in own.rounds:
        marks.setdefault(phase, {})[place] = None
    for phase, found in marks.items():
        mark = style.phase_mark(phase)
        if phase == FAILED:  # the model stayed, so the cross lies under the mark of the round that led there
            mark |= {"markersize": 9.0}
        axes.plot(*zip(*found, strict=True), **mark, zorder=2 if phase == FAILED else 4 if phase == "expand" else 3)
    return steps


def trajectory(run: RunView, width: float) -> "Figure | None":
    """One run from its initial model to its end, round by round, with a retrained model where there is one."""
    own = track(run)
    if len(own.way) < 2 or not own.rounds:
        return None

    figure = style.canvas(width, 6.0 if width == style.WIDE else 5.4)
    axes = figure.subplots()
    places = own.way + ([own.truth] if own.truth else [])
    _axes(axes, places, run.forgetting_title, width)
    steps = _way(axes, own)
    names = [("end", own.way[-1], style.INK)]
    if own.start:
        names.append(("start", own.start, style.INK))
        first: dict[str, Any] = {"marker": "o", "markersize": 9, "markerfacecolor": style.PAPER, "color": style.INK}
        axes.plot(*own.start, linestyle="none", markeredgewidth=1.6, zorder=1.5, **first)
    if own.truth:
        names.append((RETRAINED, own.truth, style.TRUTH))
        axes.plot(*own.truth, **(style.model_mark(RETRAINED) | {"markersize": 9}), markeredgewidth=1.8, zorder=6)
    axes.plot(*own.way[-1], linestyle="none", marker="o", markersize=13, mfc="none", color=style.INK, zorder=6)
    handles = style.phase_handles(list({phase for phase, _ in own.rounds}), coloured=True)
    figure.legend(handles=handles, loc="outside lower center", ncols=5 if width == style.WIDE else 2)
    style.settle(figure)  # names and arrows are placed where the layout has put the marks
    _arrows(axes, steps)
    label(axes, names, [*places, *chain(*(between(start, end) for _, start, end in steps))])
    return figure


def trajectories(runs: list[RunView], width: float) -> "Figure | None":
    """Several runs in one plane: dash and mark tell them apart, a ring is where each ended."""
    keys = {run.forgetting for run in runs if run.history}
    if len(keys) != 1 or len(runs) > MOST_RUNS:
        return None
    tracks = [(index, run, track(run)) for index, run in enumerate(runs)]
    tracks = [found for found in tracks if len(found[2].way) > 1]
    if not tracks:
        return None
    from matplotlib.lines import Line2D

    figure = style.canvas(width, 6.4 if width == style.WIDE else 5.8)
    axes = figure.subplots()
    _axes(axes, [spot for _, _, own in tracks for spot in own.way], tracks[0][1].forgetting_title, width)
    handles, steps = [], []
    for index, run, own in tracks:
        look = style.run_mark(index)
        every = max(1, len(own.way) // 12)
        axes.plot(*zip(*own.way, strict=True), **look, linewidth=1.3, markersize=4.5, markevery=every, zorder=2)
        ring = {"marker": look["marker"], "markersize": 11, "markeredgewidth": 2, "color": look["color"]}
        axes.plot(*own.way[-1], linestyle="none", markerfacecolor=style.PAPER, zorder=4, **ring)
        steps += [(look["color"], before, after) for before, after in pairwise(own.way)]
        handles.append(Line2D([], [], **look, linewidth=1.3, markersize=6, label=style.short(run.name, 26)))
    figure.legend(handles=handles, loc="outside lower center", ncols=3 if width == style.WIDE else 1, handlelength=3.5)
    style.settle(figure)
    _arrows(axes, steps)
    return figure
