"""Figure of every client: bars before and after."""

from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.markup import measured, percent
from fupareto.report.view import RunView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 30
Row = tuple[str, float | None, float | None]


def client_rows(run: RunView, side: str) -> list[Row]:
    """A side's clients with their measure before and after; of many, those that changed most for the worse."""
    key = "asr" if side == "forget" and run.marked else "accuracy"
    rows = []
    for name in run.clients(side):
        before, after = (measured(run.client(stage, name, key)) for stage in ("initial", run.final))
        if before is not None or after is not None:
            rows.append((run.shown(name), before, after))
    if len(rows) > MOST_BARS:
        sign = 1 if side == "retained" else -1
        rows = sorted(rows, key=lambda row: sign * ((row[2] or 0.0) - (row[1] or 0.0)))[:MOST_BARS]
    return rows


def _bars(axes: "Axes", rows: list[Row], colour: str, final: str, length: int) -> None:
    """Two bars per client: hatched for the initial model, solid for the final one, numbers beside."""
    places = [float(place) for place in range(len(rows))]
    before = [row[1] if row[1] is not None else 0.0 for row in rows]
    after = [row[2] if row[2] is not None else 0.0 for row in rows]
    first: dict[str, Any] = {"facecolor": style.PAPER, "edgecolor": colour, "hatch": "////", "linewidth": 0.8}
    if final == "initial":
        axes.barh(places, before, 0.5, **first)
    else:
        axes.barh([p - 0.19 for p in places], before, 0.34, **first)
        axes.barh([p + 0.19 for p in places], after, 0.34, color=colour, linewidth=0.8, edgecolor=colour)
    for place, (_, start, end) in zip(places, rows, strict=True):
        words = [percent(v) if v is not None else "–" for v in ((start, end) if final != "initial" else (start,))]
        axes.text(1.02, place, " → ".join(words), va="center", color=style.INK, transform=axes.get_yaxis_transform())
    style.names_axis(axes, [style.short(row[0], length) for row in rows])
    style.percent_axis(axes, "x", 0, 1)


def clients(run: RunView, width: float) -> "Figure | None":
    """Every client before and after; `None` when no client was measured."""
    measure = "ASR" if run.marked else "accuracy"
    gone = "Parts to be forgotten, by client" if run.part else "Forget clients"
    groups = [
        (rows, colour, title)
        for side, colour, title in (
            ("forget", style.FORGET, f"{gone}: {measure}"),
            ("retained", style.RETAINED, "Retained clients: accuracy"),
        )
        if (rows := client_rows(run, side))
    ]
    if not groups:
        return None
    sizes = [len(rows) + 1.2 for rows, _, _ in groups]
    figure = style.canvas(width, 0.34 * sum(sizes) + 0.65 * len(groups))
    grid = figure.subplots(len(groups), 1, squeeze=False, height_ratios=sizes)
    for axes, (rows, colour, title) in zip(grid[:, 0], groups, strict=True):
        _bars(axes, rows, colour, run.final or "initial", 24 if width == style.WIDE else 10)
        axes.set_title(title)
        if width != style.WIDE:
            axes.set_xticks([0, 0.5, 1])
    return figure
