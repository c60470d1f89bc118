"""Placement of labels: each at the nearest place where it covers nothing."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fupareto.report.style import FONT, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top


def label(axes: "Axes", names: Sequence[tuple[str, Place, str]], marks: Sequence[Place]) -> None:
    """Write each name, in a colour, beside its mark, at the nearest place where it covers no other name and no mark."""
    size, per_point = 9.0, axes.figure.dpi / 72
    spots = {tuple(round(value) for value in axes.transData.transform(mark) / per_point) for mark in marks}
    taken = [_around(x, y) for x, y in sorted(spots)]
    frame = tuple(value / per_point for value in axes.bbox.extents)
    for name, place, colour in sorted(names, key=lambda item: -item[1][1]):
        x, y = axes.transData.transform(place) / per_point
        width, height = _width(name, size), 1.25 * size
        box = min(_spots(x, y, width, height), key=partial(_trouble, x=x, y=y, taken=taken, frame=frame))
        taken.append(box)
        side, anchor = ("left", box[0]) if box[0] > x else ("right", box[2]) if box[2] < x else ("center", x)
        axes.annotate(
            name,
            place,
            (anchor - x, (box[1] + box[3]) / 2 - y),
            textcoords="offset points",
            ha=side,
            va="center",
            size=size,
            color=colour,
            arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.7, "shrinkB": 4} if _away(box, x, y) > 14 else None,
        ).set_in_layout(False)


def between(start: Place, end: Place) -> list[Place]:
    """Places on the way from a mark to another, for lines that names should not cover."""
    return [(start[0] + t / 5 * (end[0] - start[0]), start[1] + t / 5 * (end[1] - start[1])) for t in range(1, 5)]


def _width(name: str, size: float) -> float:
    """Return how wide a name is in points, with a little room beside it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(name, FontProperties(family=FONT, size=size), ismath=False)
    return float(width) + 4


def _around(x: float, y: float) -> Box:
    return x - 5, y - 5, x + 5, y + 5


def _spots(x: float, y: float, width: float, height: float) -> list[Box]:
    """Return places for a name around a mark: right, left, above and below, near ones and far ones."""
    boxes = []
    for step in range(16):
        for rise in (0.6 * height * step, -0.6 * height * step):
            lefts = [x + 9 + 1.5 * step, x - 9 - 1.5 * step - width] + [x - width / 2] * (abs(rise) > height)
            boxes += [(left, y + rise - height / 2, left + width, y + rise + height / 2) for left in lefts]
    return boxes


def _trouble(box: Box, x: float, y: float, taken: Sequence[Box], frame: Sequence[float]) -> float:
    """Weigh what a name would cover, how far out it would stand, what its leader would cross, and its distance."""
    covered = sum(_common(box, other) for other in taken)
    outside = sum(max(0.0, d) for d in (frame[0] - box[0], frame[1] - box[1], box[2] - frame[2], box[3] - frame[3]))
    middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    way = [(x + t / 12 * (middle[0] - x), y + t / 12 * (middle[1] - y)) for t in range(1, 12)]
    others = [b for b in taken if not (b[0] <= x <= b[2] and b[1] <= y <= b[3])]
    crossed = sum(b[0] <= px <= b[2] and b[1] <= py <= b[3] for px, py in way for b in others)
    return round(3 * covered + 100 * outside + 15 * crossed + _away(box, x, y), 1)


def _common(a: Box, b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _away(box: Box, x: float, y: float) -> float:
    across = max(box[0] - x, 0, x - box[2])
    return float((across**2 + ((box[1] + box[3]) / 2 - y) ** 2) ** 0.5)
