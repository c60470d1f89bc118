"""Draw docs/images/lasting.svg and reversion.svg, the pictures of docs/results/lasting.md, from the result files.

python docs/lasting.py [--out docs/images]
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.bench.further import mean_curve, models

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
BENCHES = {
    "lasting-digits": "digits",
    "lasting-fmnist": "Fashion-MNIST",
    "lasting-cifar10": "CIFAR-10",
    "lasting-gtsrb": "GTSRB",
    "lasting-fmnist-cn5": "Fashion-MNIST, 5 of 20",
}
LINES: dict[str, dict[str, Any]] = {  # what is drawn of every model that stands in the pictures
    "w0": {"color": style.INK, "linestyle": "--"},
    "retrained": {"color": style.INK},
    "FUPareto": {"color": style.TRUTH, "linewidth": 3.0, "marker": "o"},
    "FUPareto without renewal": {"color": style.FORGET, "marker": "s"},
    "FedOSD": {"color": style.VIOLET, "marker": "^"},
    "FUGAS": {"color": style.OCHRE, "marker": "D"},
    "Fine-tuning": {"color": style.RETAINED, "marker": "v"},
}
SCATTERED = {
    **{name: drawn for name, drawn in LINES.items() if name != "w0"},
    "Renewal alone": {"color": style.TRUTH, "marker": "P"},
    "NoT": {"color": style.NEUTRAL, "marker": "X"},
    "MoDe": {"color": style.MUTED, "marker": "h"},
}


def found() -> dict[str, dict[str, Any]]:
    """Return what audits say of the models, by the title of every bench that has results."""
    told = {}
    for name, title in BENCHES.items():
        path = ROOT / "results" / f"{name}.json"
        if path.exists():
            results = json.loads(path.read_text())
            told[title] = models(results, results["settings"][0]["name"])
    return told


def lasting(benches: dict[str, dict[str, Any]]) -> "Figure":
    """Return the ASR over the rounds that follow the request, a panel per data set."""
    figure = style.canvas(style.WIDE, 3.9)
    panels = figure.subplots(1, len(benches), sharey=True, squeeze=False)[0]
    for axes, (title, told) in zip(panels, benches.items(), strict=True):
        for name, drawn in LINES.items():
            if line := mean_curve(told.get(name, [])):
                axes.plot(range(len(line)), line, label=name, markevery=10, markersize=5, **drawn)
        axes.set_title(title.replace(", ", ",\n"))
        axes.set_xlabel("further rounds")
        axes.set_xlim(0, 40)
    _shares(panels)
    panels[0].set_ylabel("the backdoor works in")
    _legend(figure, panels[0])
    return figure


def reversion(benches: dict[str, dict[str, Any]]) -> "Figure":
    """Return the worst ASR later over distance from w0 and loss barrier to it, as shares of a retrained model's."""
    figure = style.canvas(style.WIDE, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, key in zip(panels, ("distance", "barrier"), strict=True):
        for name, drawn in SCATTERED.items():
            places = [place for told in benches.values() if (place := _place(told, name, key))]
            marked = {"marker": drawn.get("marker", "+"), "color": drawn["color"]}
            axes.plot(*zip(*places, strict=True), linestyle="none", label=name, markersize=7, **marked)
    panels[0].set_xlabel("distance from w0, over that of a retrained model")
    panels[1].set_xlabel("loss barrier on the line to w0, over that of a retrained model")
    _shares(panels)
    panels[0].set_ylabel("the backdoor works later in up to")
    _legend(figure, panels[0])
    return figure


def _place(told: dict[str, Any], name: str, key: str) -> tuple[float, float] | None:
    """Return where a model stands on an axis, and how much it remembers at its worst later."""
    if name not in told:
        return None
    whole = fmean(own[key] for own in told["retrained"])
    across = fmean(own[key] for own in told[name]) / whole
    return across, fmean(own["later"] for own in told[name])


def _shares(panels: "Sequence[Axes]") -> None:
    """Give panels that share an axis of shares room for marks at 0, and lines to read it by."""
    style.percent_axis(panels[0], "y", low=-0.02, high=0.8)
    for axes in panels:
        axes.grid(True, axis="y")


def _legend(figure: "Figure", axes: "Axes") -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)


def main() -> None:
    """Write both pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    out = parser.parse_args().out
    with style.applied():
        for name, figure in (("lasting", lasting(found())), ("reversion", reversion(found()))):
            figure.savefig(out / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
