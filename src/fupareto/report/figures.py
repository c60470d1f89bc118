"""What did the rounds and the clients do? The figures of one run, as inline SVG."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fupareto.report.markup import Safe, measured, percent
from fupareto.report.svg import (
    FORGET,
    INK,
    LINE,
    MUTED,
    NARROW,
    NEUTRAL,
    PAPER,
    RETAINED,
    SHADE,
    WIDE,
    canvas,
    percent_axis,
    round_ticks,
    short,
    style,
    to_svg,
)
from fupareto.report.view import ACTIVITY, FAILED, Run, outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# phase: (matplotlib marker, the same shape as a character, size)
MARKERS: dict[str, tuple[str, str, float]] = {
    "improve": ("o", "●", 4.5),
    "expand": ("^", "▲", 6.0),
    "recover": ("s", "■", 4.2),
    FAILED: ("x", "✕", 5.5),
    "train": ("D", "◆", 4.0),
}
OTHER = ("P", "✚", 5.0)
MOST_MARKS = 80  # per phase and panel; more would hide the line
MOST_BARS = 30

Points = list[tuple[int, float]]


def rank(phase: str) -> tuple[int, str]:
    """The order in which phases are listed: ours first, others by name."""
    return [*MARKERS, phase].index(phase), phase


def both_widths(draw: Any, *arguments: Any) -> Safe:
    """The figure drawn twice, for a desk and for a phone; the style sheet shows the one that fits."""
    parts = []
    for name, width in (("wide", WIDE), ("narrow", NARROW)):
        with style():
            parts.append(f'<div class="{name}">{draw(*arguments, width)}</div>')
    return Safe("".join(parts))


def positions(history: list[dict[str, Any]]) -> list[int]:
    """Where each round stands on the axis: its number, or its place when numbers do not grow."""
    numbers = [record.get("round") for record in history]
    known = [n for n in numbers if isinstance(n, int)]
    if len(known) == len(numbers) and all(a < b for a, b in pairwise(known)):
        return known
    return list(range(1, len(history) + 1))


def series(history: list[dict[str, Any]], key: str) -> Points:
    """The rounds at which `key` was measured, with its values."""
    pairs = zip(positions(history), (measured(record.get(key)) for record in history), strict=True)
    return [(place, value) for place, value in pairs if value is not None]


def thin(points: Points) -> Points:
    """At most `MOST_MARKS` of the points, evenly spread."""
    every = -(-len(points) // MOST_MARKS) or 1
    return points[::every]


def _curve(axes: "Axes", history: list[dict[str, Any]], key: str, colour: str) -> None:
    """A line through the measured rounds, with a mark on each that says what the round did."""
    line = series(history, key)
    axes.plot([x for x, _ in line], [y for _, y in line], color=colour, linewidth=1.4, zorder=2)
    values = dict(line)
    marks: dict[str, Points] = {}
    for place, record in zip(positions(history), history, strict=True):
        if place in values:
            marks.setdefault(outcome(record), []).append((place, values[place]))
    for phase, points in marks.items():
        marker, _, size = MARKERS.get(phase, OTHER)
        chosen = thin(points)
        axes.plot(
            [x for x, _ in chosen],
            [y for _, y in chosen],
            linestyle="none",
            marker=marker,
            markersize=size,
            markerfacecolor=colour,
            markeredgecolor=INK if phase == FAILED else colour if marker in "xP" else PAPER,
            markeredgewidth=1.5 if phase == FAILED else 0.6,
            zorder=4 if phase in (FAILED, "expand") else 3,
        )
    if not line:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=MUTED)


def _before(axes: "Axes", value: object) -> None:
    """A dashed line at the initial model's value."""
    level = measured(value)
    if level is not None:
        axes.axhline(level, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)


def zoom(values: list[float], least: float) -> tuple[float, float]:
    """Limits around fractions, at least `least` apart, within [0, 1] and a hair of margin."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    spare = max(0.08 * (high - low), (least - (high - low)) / 2)
    return max(-0.02, low - spare), min(1.02, high + spare)


def _stages(panels: "list[Axes]", history: list[dict[str, Any]]) -> None:
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
                axes.axvspan(left, right, color=SHADE, linewidth=0, zorder=0)
                axes.axvline(left, color=MUTED, linewidth=0.8, linestyle=":", zorder=1)
        axes.set_xlim(spans[0][1], spans[-1][2])
    for index, (stage, _, _) in enumerate((spans[0], spans[-1])[: len(spans)]):
        label = ACTIVITY.get(stage, stage)
        panels[0].annotate(
            f"{label} →" if index == 0 else f"{label} (shaded)" if stage == "recovered" else label,
            (index, 1),
            (0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right" if index else "left",
            color=MUTED,
        )


def convergence(run: Run, prefix: str = "convergence") -> Safe | None:
    """ASR, R-Acc and distance from the initial model by round; `None` when there is no round to show."""
    if not run.history:
        return None

    def draw(width: float) -> Safe:
        from matplotlib.lines import Line2D
        from matplotlib.ticker import MaxNLocator

        history = run.history
        figure = canvas(width, 7.6 if width == WIDE else 7.8)
        panels = list(figure.subplots(3, 1, sharex=True))
        forgetting, utility, distance = panels
        _stages(panels, history)
        _curve(forgetting, history, "asr", FORGET)
        _before(forgetting, run.value("initial", "asr"))
        percent_axis(forgetting, "y", -0.02, 1.02)
        forgetting.set_title("ASR: how much is still remembered", pad=20)

        worst = series(history, "r_acc_min")
        if worst:
            utility.plot(*zip(*worst, strict=True), color=RETAINED, linewidth=1.1, linestyle=":", zorder=2)
        _curve(utility, history, "r_acc", RETAINED)
        _before(utility, run.value("initial", "r_acc"))
        levels = [value for _, value in series(history, "r_acc") + worst]
        levels += [v for v in [measured(run.value("initial", "r_acc"))] if v is not None]
        percent_axis(utility, "y", *zoom(levels, 0.1))
        utility.set_title("R-Acc: accuracy of retained clients")

        _curve(distance, history, "distance", NEUTRAL)
        distance.set_ylim(bottom=0)
        distance.grid(axis="y")
        distance.yaxis.set_major_locator(MaxNLocator(5))
        distance.set_title("Distance from the initial model")
        distance.set_xlabel("round")
        distance.xaxis.set_major_locator(round_ticks(width))

        handles = []
        for phase in sorted({outcome(record) for record in history}, key=rank):
            marker, _, size = MARKERS.get(phase, OTHER)
            label = "failed (no step)" if phase == FAILED else short(phase, 16)
            handles.append(
                Line2D([], [], linestyle="none", marker=marker, color=NEUTRAL, markersize=size + 1, label=label)
            )
        handles.append(Line2D([], [], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="initial model"))
        if worst:
            handles.append(Line2D([], [], color=RETAINED, linewidth=1.1, linestyle=":", label="worst client"))
        figure.legend(handles=handles, loc="outside lower center", ncols=6 if width == WIDE else 2)
        return to_svg(figure, f"{prefix}-{int(10 * width)}", "Convergence: ASR, R-Acc and distance by round")

    return both_widths(draw)


Row = tuple[str, float | None, float | None]


def _bars(axes: "Axes", rows: list[Row], colour: str, final: str, length: int) -> None:
    """Two bars per client: hatched for the initial model, solid for the final one, numbers beside."""
    places = [float(place) for place in range(len(rows))]
    before = [row[1] if row[1] is not None else 0.0 for row in rows]
    after = [row[2] if row[2] is not None else 0.0 for row in rows]
    first: dict[str, Any] = {"facecolor": PAPER, "edgecolor": colour, "hatch": "////", "linewidth": 0.8}
    if final == "initial":
        axes.barh(places, before, 0.5, **first)
    else:
        axes.barh([p - 0.19 for p in places], before, 0.34, **first)
        axes.barh(
            [p + 0.19 for p in places],
            after,
            0.34,
            color=colour,
            linewidth=0.8,
            edgecolor=colour,
        )
    for place, (_, start, end) in zip(places, rows, strict=True):
        words = [percent(v) if v is not None else "–" for v in ((start, end) if final != "initial" else (start,))]
        axes.text(1.02, place, " → ".join(words), va="center", color=INK, transform=axes.get_yaxis_transform())
    axes.set_yticks(places, [short(row[0], length) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    percent_axis(axes, "x", 0, 1)
    axes.spines["left"].set_color(LINE)


def client_rows(run: Run, side: str) -> list[Row]:
    """A side's clients with their measure before and after; of many, those that fared worst."""
    key = "accuracy" if side == "retained" else run.forgetting_measure
    rows = []
    for name in run.clients(side):
        before, after = (measured(run.client(stage, name, key)) for stage in ("initial", run.final))
        if before is not None or after is not None:
            rows.append((name, before, after))
    if len(rows) > MOST_BARS:
        sign = 1 if side == "retained" else -1
        rows = sorted(rows, key=lambda row: sign * ((row[2] or 0.0) - (row[1] or 0.0)))[:MOST_BARS]
    return rows


def clients(run: Run, prefix: str = "clients") -> Safe | None:
    """Every client before and after; `None` when no client was measured."""
    forget, retained = client_rows(run, "forget"), client_rows(run, "retained")
    measure = "ASR" if run.forgetting_measure == "asr" else "accuracy"
    groups = [
        (rows, colour, title)
        for rows, colour, title in (
            (forget, FORGET, f"Clients to be forgotten: {measure}"),
            (retained, RETAINED, "Retained clients: accuracy"),
        )
        if rows
    ]
    if not groups:
        return None

    def draw(width: float) -> Safe:
        sizes = [len(rows) + 1.2 for rows, _, _ in groups]
        figure = canvas(width, 0.34 * sum(sizes) + 0.65 * len(groups))
        grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=sizes)
        for axes, (rows, colour, title) in zip(grid[:, 0], groups, strict=True):
            _bars(axes, rows, colour, run.final or "initial", 24 if width == WIDE else 10)
            axes.set_title(title)
        return to_svg(figure, f"{prefix}-{int(10 * width)}", "Every client before and after")

    return both_widths(draw)
