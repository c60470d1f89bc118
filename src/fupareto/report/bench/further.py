"""Figures of what further training brings back: by round, and over what may predict it."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fupareto.report import style
from fupareto.report.bench import looks
from fupareto.report.bench.aggregate import INITIAL, Results, answers, known_as, known_by
from fupareto.report.bench.looks import DESK, Frame
from fupareto.report.labels import label as write
from fupareto.report.markup import measured
from fupareto.vocabulary import RETRAINED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Models = dict[str, list[Mapping[str, Any]]]  # model -> seeds -> what audits say of it


def lasting(results: Results, setting: str, frame: Frame = DESK) -> "Figure | None":
    """What is remembered after each further round among the retained clients, a line per model."""
    curves = {name: line for name, seeds in models(results, setting).items() if (line := mean_curve(seeds))}
    if not curves:
        return None
    figure = frame.canvas(5.4 + frame.legend_height(len(curves)))
    axes = figure.subplots()
    for name, line in curves.items():
        own = name in (INITIAL, RETRAINED)
        drawn = (
            {"color": style.INK, "linestyle": "--" if name == INITIAL else "-"} if own else looks.look(results, name)
        )
        every: dict[str, Any] = {"markevery": max(1, len(line) // 8), "markersize": 6} if not own else {}
        axes.plot(range(len(line)), line, linewidth=1.8 if own else 1.4, label=style.short(name, 26), **every, **drawn)
    known = known_by(results, setting)
    style.remembered_axis(axes, "y")
    axes.set_xlim(0, max(map(len, curves.values())) - 1)
    axes.set_xlabel("further rounds of training" + (" among the retained clients" if frame.wide else ""))
    axes.set_ylabel(f"{known_as(known)} ({style.LOGARITHMIC})")
    axes.set_title("What comes back after the request" + (" was answered (lower is better)" if frame.wide else ""))
    frame.legend(figure)
    return figure


def reversion(results: Results, setting: str, frame: Frame = DESK) -> "Figure | None":
    """How much more is remembered at the worst later than now, over distance and loss barrier."""
    found = models(results, setting)
    places = {key: _places(found, key) for key in ("distance", "barrier")}
    if not all(places.values()):
        return None
    figure = frame.canvas(5.4 if frame.wide else 7.6 + frame.legend_height(len(found)))
    titles = {"distance": "Distance from the initial model", "barrier": "Loss barrier on the line to the initial model"}
    panels = dict(zip(places, figure.subplots(*((1, 2) if frame.wide else (2, 1)), sharey=True), strict=True))
    for key, axes in panels.items():
        _scatter(axes, results, places[key])
        axes.set_title(titles[key])
        axes.set_xlim(left=-0.03 * max(x for x, _ in places[key].values()))
    panels["distance"].set_ylabel(f"{known_as(known_by(results, setting))}: worst later, minus now")
    if not frame.wide:
        looks.legend(frame, figure, results, list(places["distance"]))
        return figure
    style.settle(figure)
    for key, axes in panels.items():
        names = [(style.short(n, 20), place, looks.mark(results, n)["color"]) for n, place in places[key].items()]
        write(axes, names, list(places[key].values()))
    return figure


def _scatter(axes: "Axes", results: Results, places: Mapping[str, tuple[float, float]]) -> None:
    for name, place in places.items():
        axes.plot(*place, linestyle="none", **looks.mark(results, name))
    axes.grid(axis="y")


def models(results: Results, setting: str) -> Models:
    """Return what audits say of the initial, the retrained and every method's kept model, by seed."""
    found: Models = {}
    seen: set[tuple[str, int]] = set()
    for cell in answers(results, setting):
        told = (cell.get("lasting") or {}).get("models") or {}
        for stage, name in (("initial", INITIAL), (RETRAINED, RETRAINED), (cell.get("final"), cell["label"])):
            if stage in told and (name, cell["seed"]) not in seen:
                seen.add((name, cell["seed"]))
                found.setdefault(name, []).append({**cell["stages"].get(stage, {}), **told[stage]})
    first = [name for name in (INITIAL, RETRAINED) if name in found]
    return {name: found[name] for name in (*first, *(n for n in found if n not in first))}


def mean_curve(seeds: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the mean over seeds by round; empty where a round was not measured."""
    lines = [line for own in seeds if (line := own.get("curve")) and all(measured(v) is not None for v in line)]
    if not lines or len(lines) < len(seeds):
        return []
    return [fmean(values) for values in zip(*lines, strict=False)]


def _places(found: Models, key: str) -> dict[str, tuple[float, float]]:
    """Return by model the mean of ``key`` and of how much more is remembered later."""
    places = {}
    for name, seeds in found.items():
        across = [value for own in seeds if (value := measured(own.get(key))) is not None]
        rise = [
            worst - now
            for own in seeds
            if (worst := measured(own.get("later"))) is not None
            and (now := measured((own.get("curve") or [None])[0])) is not None
        ]
        if across and rise:
            places[name] = fmean(across), fmean(rise)
    return places
