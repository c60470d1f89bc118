"""Figures of the audit: further training, relearning, and the clients that updates opposed."""

from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.markup import measured
from fupareto.report.view import RunView, dig, positions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDES = (("forget", style.FORGET, "-", "o"), ("retained", style.RETAINED, style.DASHED, "s"))


def dormancy(run: RunView, width: float) -> "Figure | None":
    """What each model remembers while the retained clients train it on."""
    return _curves(run, "dormancy", "rounds of further training among the retained clients", "after the request", width)


def relearning(run: RunView, width: float) -> "Figure | None":
    """What each model knows while it is slowly trained on the forgotten data again."""
    return _curves(run, "relearning", "slow rounds of training on the forgotten data", "while relearning", width)


def _curves(run: RunView, part: str, across: str, when: str, width: float) -> "Figure | None":
    """A curve per model that a part of the audit trained on."""
    curves = {}
    for stage in run.models(part, "models"):
        values = [measured(value) for value in run.audited(part, "models", stage, "curve") or []]
        if points := [(place, value) for place, value in enumerate(values) if value is not None]:
            curves[stage] = points
    if not curves:
        return None
    figure = style.canvas(width, 3.6 if width == style.WIDE else 4.0)
    axes = figure.subplots()
    last = max(place for points in curves.values() for place, _ in points)
    for stage, points in curves.items():
        every = max(1, len(points) // 12)
        axes.plot(*zip(*points, strict=True), **style.model_mark(stage), linewidth=1.4, markevery=every, label=stage)
    axes.set_xlim(-0.03 * max(last, 1), 1.03 * max(last, 1))
    axes.xaxis.set_major_locator(style.round_ticks(width))
    axes.set_xlabel(across)
    style.percent_axis(axes, "y", -0.02, 1.02)
    name = "ASR" if run.audited(part, "measure") == "asr" else "Forget accuracy"
    axes.set_title(f"{name} {when}")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5 if width == style.WIDE else 2, handlelength=3.5)
    return figure


def conflicts(run: RunView) -> list[dict[str, Any]]:
    """The audit's records of how rounds stood to the clients' gradients."""
    return [record for record in run.audited("exclusivity", "conflicts") or [] if isinstance(record, dict)]


def opposed(run: RunView, record: dict[str, Any], side: str) -> float | None:
    """The share of a side's clients that a round's update opposed."""
    clients = len(run.forget) if side == "forget" else len(run.clients("retained"))
    against = measured(dig(record, side, "negative"))
    return min(1.0, against / clients) if against is not None and clients else None


def _lines(axes: "Axes", places: list[int], values: dict[str, list[float | None]]) -> bool:
    """A line per side; say whether there is one."""
    drawn = False
    for side, colour, dash, marker in SIDES:
        known = [(place, value) for place, value in zip(places, values[side], strict=True) if value is not None]
        if not known:
            continue
        drawn = True
        axes.plot(
            [place for place, _ in known],
            [value for _, value in known],
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=4.5,
            markevery=max(1, len(known) // 20),
            linewidth=1.3,
            label="forget clients" if side == "forget" else "retained clients",
        )
    if not drawn:
        style.nothing(axes)
    return drawn


def conflict(run: RunView, width: float) -> "Figure | None":
    """By round, the smallest cosine of the update with a client's gradient, and the share of clients it opposed."""
    records = conflicts(run)
    if not records:
        return None
    figure = style.canvas(width, 4.8 if width == style.WIDE else 5.4)
    worst, share = figure.subplots(2, 1, sharex=True)
    places, names = positions(records), [side for side, *_ in SIDES]
    least = {side: [measured(dig(record, side, "min")) for record in records] for side in names}
    if _lines(worst, places, least):
        known = [value for values in least.values() for value in values if value is not None]
        spare = 0.08 * max(0.1, max(known) - min(known))
        worst.set_ylim(min(0, *known) - spare, max(0, *known) + spare)
    worst.axhline(0, color=style.INK, linewidth=1.2, zorder=1)
    worst.grid(axis="y")
    worst.set_title("Smallest cosine with a client’s gradient")
    against = {side: [opposed(run, record, side) for record in records] for side in names}
    _lines(share, places, against)
    most = max([0.2, *(value for values in against.values() for value in values if value is not None)])
    style.percent_axis(share, "y", -0.04 * most, 1.08 * most)
    share.set_title("Clients that the update opposed")
    share.set_xlabel("round")
    share.xaxis.set_major_locator(style.round_ticks(width))
    handles, labels = worst.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 if width == style.WIDE else 1, handlelength=3.5)
    return figure
