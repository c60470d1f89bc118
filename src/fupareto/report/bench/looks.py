"""Looks of a bench's figures: frames with headings, and colours, dashes and marks of methods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.bench.aggregate import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Frame:
    """What a figure is drawn into.

    Attributes:
        width: Width in inches.
        heading: Text above the figure; empty where the page around it says it.
    """

    width: float = style.WIDE
    heading: str = ""

    @property
    def wide(self) -> bool:
        """Whether the figure is for a desk, and not for a phone."""
        return self.width == style.WIDE

    def canvas(self, height: float) -> "Figure":
        """Return an empty figure of this width, with the heading."""
        figure = style.canvas(self.width, height)
        if self.heading:
            figure.suptitle(style.short(self.heading, 100), x=0.01, ha="left", size=11, color=style.INK)
        return figure

    def legend(self, figure: "Figure", **options: Any) -> None:
        """Write the legend below the figure, in as many columns as the width bears."""
        figure.legend(loc="outside lower center", ncols=4 if self.wide else 1, handlelength=3.5, **options)

    def legend_height(self, entries: int) -> float:
        """Return how many inches the legend needs."""
        return 0.2 * (entries // 4) if self.wide else 0.2 * entries


DESK = Frame()


def look(results: Results, label: str) -> dict[str, Any]:
    """Return the colour, dash and mark of a method."""
    return style.run_mark(index(results, label))


def index(results: Results, label: str) -> int:
    """Return the position of a method in the bench."""
    return [m["label"] for m in results["methods"]].index(label)


def mark(results: Results, label: str) -> dict[str, Any]:
    """Return the mark of a method in a plane; that of the initial and the retrained model is a cross."""
    if label not in [m["label"] for m in results["methods"]]:
        return {"color": style.INK, "marker": "+", "markersize": 12, "markeredgewidth": 2.2}
    drawn = look(results, label)
    return {"color": drawn["color"], "marker": drawn["marker"], "markersize": 8, "markeredgewidth": 1.2}


def legend(frame: Frame, figure: "Figure", results: Results, labels: Sequence[str]) -> None:
    """Name marks below a figure that is too narrow for names beside them."""
    from matplotlib.lines import Line2D

    marks = [Line2D([], [], linestyle="none", label=style.short(name, 26), **mark(results, name)) for name in labels]
    frame.legend(figure, handles=marks)


def heading(results: Results, setting: str) -> str:
    """Return the title of the bench, the setting and the scale, as they stand above the file of a figure."""
    scale = f" ({results['scale']} scale)" if results["scale"] != "full" else ""
    return f"{results['title']}: {setting}{scale}"
