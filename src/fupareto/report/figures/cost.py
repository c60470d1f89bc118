"""Figure of the cost beside retraining: rounds, time and traffic."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.markup import count, duration, measured, size
from fupareto.report.view import RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Compared = tuple[str, float, float, Callable[[float], str]]  # what, this run, retraining, how it is written


def traffic(spent: dict[str, Any]) -> float | None:
    """Return the bytes sent both ways; None where neither is known."""
    ways = [measured(spent.get(key)) for key in ("bytes_up", "bytes_down")]
    return sum(way for way in ways if way is not None) if any(way is not None for way in ways) else None


def compared(run: RunView) -> list[Compared]:
    """What is known of both this run and retraining."""
    own, other = run.summary.get("cost") or {}, run.audited("truth") or {}
    values = [
        ("rounds", measured(own.get("rounds")), measured(other.get("rounds")), count),
        ("time", measured(own.get("seconds")), measured(other.get("seconds")), duration),
        ("traffic", traffic(own), traffic(other), size),
    ]
    return [(what, a, b, form) for what, a, b, form in values if a is not None and b is not None]


def cost(run: RunView, width: float) -> "Figure | None":
    """This run beside retraining, each measure on an axis of its own."""
    found = compared(run)
    if not found:
        return None
    wide = width == style.WIDE
    figure = style.canvas(width, 1.5 if wide else 1.35 * len(found))
    grid = (
        figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
        if wide
        else figure.subplots(len(found), 1, squeeze=False)[:, 0]
    )
    for axes, (what, own, other, form) in zip(grid, found, strict=True):
        most = max(own, other) or 1.0
        axes.barh(0, own, 0.6, color=style.RETAINED, linewidth=0.8, edgecolor=style.RETAINED)
        axes.barh(1, other, 0.6, facecolor=style.PAPER, edgecolor=style.TRUTH, hatch="////", linewidth=0.8)
        for row, value in enumerate((own, other)):
            axes.text(value + 0.03 * most, row, form(value), va="center", color=style.INK)
        style.names_axis(axes, ["this run", "retraining"])
        axes.set_xlim(0, 1.45 * most)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.set_title(what.capitalize())
    return figure
