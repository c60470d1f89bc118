"""Looks of a bench's figures: colours, dashes and marks of methods, and headings."""

from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.bench.aggregate import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def heading(figure: "Figure", results: Results, setting: str) -> None:
    """Write the title of the bench, the setting and the scale above a figure."""
    scale = f" ({results['scale']} scale)" if results["scale"] != "full" else ""
    figure.suptitle(
        style.short(f"{results['title']}: {setting}{scale}", 100), x=0.01, ha="left", size=11, color=style.INK
    )
