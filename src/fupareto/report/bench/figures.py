"""Figures of a bench: curves by round, final models and what further training brings back, as SVG and PNG.

A method has the same colour, dash and mark in both; up to fifteen methods no two share a mark, so that nothing hangs
on colour alone.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from fupareto.report import style, svg
from fupareto.report.bench import further, looks
from fupareto.report.bench.aggregate import Results, aggregate, known_as, known_by
from fupareto.report.bench.looks import DESK, Frame
from fupareto.report.labels import between
from fupareto.report.labels import label as write
from fupareto.report.view import series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rounds = list[dict[str, Any]]
Curves = Mapping[str, Mapping[str, Sequence[Rounds]]]  # setting -> label -> seeds -> rounds
Draw = Callable[[Frame], "Figure | None"]

FAR = 3.0  # retraining this many times longer than everything else is cut off at the edge
DIVERGED = 100.0  # a distance this many times the middle one would press all others onto the axis


def files(results: Results, curves: Curves, setting: str) -> dict[str, bytes]:
    """Return the figures of a setting by name and ending, as in ``pareto.svg``; none for what was not measured."""
    drawings: dict[str, bytes] = {}
    with style.applied():
        for name, draw in draws(results, curves, setting).items():
            figure = draw(Frame(heading=looks.heading(results, setting)))
            if figure is not None:
                drawings |= svg.to_files(figure, name)
    return drawings


def draws(results: Results, curves: Curves, setting: str) -> dict[str, Draw]:
    """Return by name what draws the figures of a setting into a frame."""
    return {
        "convergence": partial(convergence, results, curves, setting),
        "pareto": partial(pareto, results, setting),
        "lasting": partial(further.lasting, results, setting),
        "reversion": partial(further.reversion, results, setting),
    }


# Round by round --------------------------------------------------------------------------------------------------


def convergence(results: Results, curves: Curves, setting: str, frame: Frame = DESK) -> "Figure | None":
    """ASR, R-Acc and distance by round, a line per method, the mean over seeds."""
    found = curves.get(setting, {})
    labels = [m["label"] for m in results["methods"] if any(found.get(m["label"], ()))]
    if not labels:
        return None
    from matplotlib.lines import Line2D

    figure = frame.canvas(8.6 + frame.legend_height(len(labels)))
    panels = list(figure.subplots(3, 1, sharex=True))
    last = _edge(results, {label: found[label] for label in labels})
    first = next((row for row in aggregate(results) if (row.setting, row.stage) == (setting, "initial")), None)
    known = known_by(results, setting)
    titles = {
        known: known_axis(known, frame),
        "r_acc": "R-Acc (higher is better)",
        "distance": "Distance from the initial model",
    }
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        levels = [value for label in labels for value in _line(axes, results, label, found[label], key, last)]
        far = _finish(axes, key, levels, first.mean[key] if first else None)
        axes.set_title(f"{title} (logarithmic)" if far else title)
    panels[2].set_xlabel("round")
    panels[2].set_xlim(0, last + max(1, last // 100))
    panels[2].xaxis.set_major_locator(style.round_ticks(frame.width))
    handles = [_handle(results, label, found[label], last) for label in labels]
    handles.append(Line2D([], [], color=style.MUTED, linewidth=1, linestyle=style.DASHED, label="initial model"))
    if any(_recovery(rounds) for label in labels for rounds in found[label]):
        handles.append(Line2D([], [], color=style.INK, linestyle="none", **_TICK, label="recovery begins"))
    frame.legend(figure, handles=handles)
    return figure


def known_axis(key: str, frame: Frame) -> str:
    """Return the title of an axis of what is remembered."""
    scale = f"; {style.LOGARITHMIC}" if frame.wide else ""
    return f"{known_as(key)} (lower is better{scale})"


def _finish(axes: "Axes", key: str, levels: list[float], initial: float | None) -> bool:
    """Set the axis of a panel, and draw the level of the initial model, whose distance from itself needs no line.

    Return whether a method went so far away that distances are on a logarithmic axis.
    """
    from matplotlib.ticker import MaxNLocator

    if not levels:
        style.nothing(axes)
    if key == "distance":
        axes.grid(axis="y")
        if levels and max(levels) > DIVERGED * median(levels) > 0:
            style.logarithmic_axis(axes, levels)
            return True
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        return False
    style.level(axes, initial)
    if key == "r_acc":
        style.percent_axis(axes, "y", *style.zoom(levels + ([initial] if initial is not None else []), 0.1))
    else:
        style.remembered_axis(axes, "y")
    return False


_MARK: dict[str, Any] = {"markersize": 6.5, "markeredgecolor": style.PAPER, "markeredgewidth": 0.5}
_TICK: dict[str, Any] = {"marker": "|", "markersize": 15, "markeredgewidth": 1.6}


def _line(axes: "Axes", results: Results, label: str, seeds: Sequence[Rounds], key: str, last: int) -> list[float]:
    """Draw a method's mean, with a tick where its recovery begins; return what is to be seen of it."""
    line = mean(seeds, key)
    xs, ys = [x for x, _ in line], [y for _, y in line]
    drawn = looks.look(results, label)
    every = max(1, last // 8)
    offset = looks.index(results, label) * every // len(results["methods"])  # so that marks of equal lines lie apart
    marks = sorted({*range(offset, len(line), every), *([len(line) - 1] if line else [])})
    axes.plot(xs, ys, linewidth=1.4, markevery=marks, **_MARK, **drawn)
    starts = [start for rounds in seeds if (start := _recovery(rounds))]
    if starts and line:
        start = min(xs, key=lambda x: abs(x - fmean(starts)))
        axes.plot(start, dict(line)[start], color=drawn["color"], zorder=5, **_TICK)
    return [y for x, y in line if x <= last]


def mean(seeds: Sequence[Rounds], key: str) -> list[tuple[int, float]]:
    """Return the mean over seeds by round; a run that has ended stays where it ended."""
    lines = [dict(line) for rounds in seeds if (line := series(rounds, key))]
    held: list[float | None] = [None] * len(lines)
    points = []
    for place in sorted({x for line in lines for x in line}):
        held = [line.get(place, before) for line, before in zip(lines, held, strict=True)]
        known = [value for value in held if value is not None]
        if len(known) == len(lines):
            points.append((place, fmean(known)))
    return points


def _recovery(rounds: Rounds) -> int | None:
    """Return the first round of recovery."""
    return next((r["round"] for r in rounds if r["stage"] == "recovered"), None)


def _edge(results: Results, found: Mapping[str, Sequence[Rounds]]) -> int:
    """Return the last round to draw; retraining is cut off where it would compress the others."""
    anew = {m["label"] for m in results["methods"] if m["method"].partition(":")[0] == "retrain"}
    lengths = {label: max(map(len, seeds)) for label, seeds in found.items()}
    longest = max(lengths.values())
    others = max((length for label, length in lengths.items() if label not in anew), default=longest)
    return others if longest > FAR * others else longest


def _handle(results: Results, label: str, seeds: Sequence[Rounds], last: int) -> Any:
    from matplotlib.lines import Line2D

    length = max(map(len, seeds))
    text = style.short(label, 24) + (f" (to {length})" if length > last else "")
    return Line2D([], [], linewidth=1.4, label=text, **_MARK, **looks.look(results, label))


# Where they ended ------------------------------------------------------------------------------------------------


def pareto(results: Results, setting: str, frame: Frame = DESK) -> "Figure | None":
    """R-Acc over ASR: solid where a method ended, hollow where it stood before recovery."""
    known = known_by(results, setting)
    rows = [r for r in aggregate(results) if r.setting == setting and None not in (r.mean[known], r.mean["r_acc"])]
    if not rows:
        return None
    from matplotlib.lines import Line2D

    figure = frame.canvas(6.4 if frame.wide else 5.4 + frame.legend_height(len(rows)))
    axes = figure.subplots()
    places = {(row.label, row.stage): (float(row.mean[known] or 0), float(row.mean["r_acc"] or 0)) for row in rows}
    ends = {label: place for (label, _), place in places.items()}  # the last stage of each
    for (label, stage), place in places.items():
        mark = looks.mark(results, label)
        if place != ends[label]:
            axes.annotate("", ends[label], place, arrowprops={"arrowstyle": "->", "color": mark["color"], "lw": 0.8})
            mark |= {"markerfacecolor": style.PAPER}
        axes.plot(*place, linestyle="none", zorder=3 if stage != "initial" else 2, **mark)
    style.remembered_axis(axes, "x", few=not frame.wide)
    style.percent_axis(axes, "y", *style.zoom([y for _, y in places.values()], 0.1))
    axes.set_title("Better is up and to the left")
    axes.set_xlabel(known_axis(known, frame))
    axes.set_ylabel("R-Acc (higher is better)")
    if frame.wide and any(stage == "recovered" for _, stage in places):
        fills = (("before recovery", style.PAPER), ("after recovery, or where there is none", style.NEUTRAL))
        handles = [
            Line2D([], [], linestyle="none", marker="o", color=style.NEUTRAL, mfc=f, label=name) for name, f in fills
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    if not frame.wide:
        looks.legend(frame, figure, results, list(ends))
        return figure
    style.settle(figure)  # labels are placed where the layout has put the marks
    ways = [between(place, ends[label]) for (label, _), place in places.items() if place != ends[label]]
    names = [(style.short(label, 26), place, looks.mark(results, label)["color"]) for label, place in ends.items()]
    write(axes, names, [*places.values(), *chain(*ways)])
    return figure
