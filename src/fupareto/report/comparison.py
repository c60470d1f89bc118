"""How do runs stand beside each other? The sections and figures of a comparison."""

from typing import Any

from fupareto.report.figures import both_widths, series, zoom
from fupareto.report.markup import (
    Safe,
    count,
    decimal,
    duration,
    join,
    measured,
    names,
    number,
    percent,
    size,
    tag,
)
from fupareto.report.sections import figure, section
from fupareto.report.svg import (
    FORGET,
    INK,
    LINE,
    MUTED,
    NEUTRAL,
    PAPER,
    RETAINED,
    WIDE,
    canvas,
    percent_axis,
    round_ticks,
    short,
    to_svg,
)
from fupareto.report.view import Run

MOST_ROWS = 40
MOST_CURVES = 6
COLUMNS = (
    ("asr", "ASR", percent),
    ("asr_max", "worst client’s ASR", percent),
    ("r_acc", "R-Acc", percent),
    ("r_acc_min", "worst retained", percent),
    ("distance", "distance", decimal),
)
COSTS = (
    ("rounds", "rounds", count),
    ("seconds", "time", duration),
)
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (6, 2)),
    (0, (2, 1.5)),
    (0, (6, 2, 1, 2)),
    (0, (1, 1)),
    (0, (8, 2, 2, 2)),
)
_SHAPES = "os^DvP"


def header(runs: list[Run]) -> Safe:
    """How many runs, and whether they may be compared at all."""
    title = f"{len(runs)} runs side by side" if len(runs) != 1 else "One run"
    return tag("header", tag("p", "Comparison of runs", class_="eyebrow"), tag("h1", title), _differences(runs))


def _differences(runs: list[Run]) -> Safe | None:
    """What makes the runs unlike each other, besides their method."""
    unlike = []
    for key, title in (
        ("dataset", "data set"),
        ("model", "model"),
        ("clients", "clients"),
        ("forget", "clients to be forgotten"),
        ("seed", "seed"),
    ):
        if len({repr(run.summary.get(key)) for run in runs}) > 1:
            unlike.append(title)
    if not unlike:
        return None
    what = ", ".join(unlike)
    text = f"These runs were not made alike. They differ in: {what}."
    return tag("p", text, class_="warning")


def table(runs: list[Run]) -> Safe:
    """One row per run: the final model's numbers, the initial one's below, and the cost."""
    titles = [title for _, title, _ in (*COLUMNS, *COSTS)] + ["traffic"]
    heads = [tag("th", "run", scope="col")] + [tag("th", title, scope="col", class_="number") for title in titles]
    rows = []
    for index, run in enumerate(runs):
        about = [str(run.summary[key]) for key in ("method", "dataset", "model") if run.summary.get(key)]
        cells = [
            tag(
                "th",
                tag("bdi", run.name),
                tag("small", " · ".join([*about, run.final or "no model"])),
                scope="row",
            )
        ]
        for key, _, form in COLUMNS:
            end = number(f"runs.{index}.stages.{run.final}.{key}", run.value(run.final, key), form)
            start = None
            if run.final != "initial":
                old = number(f"runs.{index}.stages.initial.{key}", run.value("initial", key), form)
                start = tag("small", "from ", old) if key != "distance" else None
            cells.append(tag("td", end, start, class_="number"))
        spent = run.summary.get("cost") or {}
        cells += [
            number(f"runs.{index}.cost.{key}", spent.get(key), form, "td", class_="number") for key, _, form in COSTS
        ]
        up, down = (number(f"runs.{index}.cost.{key}", spent.get(key), size) for key in ("bytes_up", "bytes_down"))
        cells.append(tag("td", up, " up", tag("small", down, " down"), class_="number"))
        rows.append(tag("tr", *cells))
    content = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="plain dense runs")
    explain = (
        "ASR is how much of the clients to be forgotten is still remembered (lower is better), R-Acc the "
        "accuracy for those who stay (higher is better). “From” is the initial model of the same run."
    )
    return section(
        "table",
        "The numbers",
        tag("p", explain, class_="small"),
        tag("div", content, class_="scroll", tabindex="0", role="region", aria_label="The numbers"),
    )


def _from_to(runs: list[Run], width: float) -> Safe:
    """One row per run: where it began, where forgetting took it, where it ended."""
    from matplotlib.lines import Line2D

    side_by_side = width == WIDE
    height = 0.36 * len(runs) + 0.9
    drawing = canvas(width, 0.5 + (height if side_by_side else 2 * height))
    grid = drawing.subplots(1, 2, sharey=True) if side_by_side else drawing.subplots(2, 1)
    for axes, key, colour, title in (
        (grid[0], "asr", FORGET, "ASR (lower is better)"),
        (grid[1], "r_acc", RETAINED, "R-Acc (higher is better)"),
    ):
        for row, run in enumerate(runs):
            values = {stage: measured(run.value(stage, key)) for stage in run.stages}
            path = [value for value in values.values() if value is not None]
            axes.plot(path, [row] * len(path), color=LINE, linewidth=2.5, zorder=1, solid_capstyle="round")
            for stage, value in values.items():
                if value is not None:
                    shape = "^" if stage == "unlearned" else "o"
                    face = PAPER if stage == "initial" else colour
                    axes.plot(value, row, marker=shape, color=colour, markerfacecolor=face, markersize=7, zorder=2)
            if not path:
                axes.text(0.02, row, "not measured", color=MUTED, va="center")
        axes.set_yticks(range(len(runs)), [short(run.name, 24 if side_by_side else 12) for run in runs])
        axes.set_ylim(len(runs) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        levels = [v for run in runs for stage in run.stages if (v := measured(run.value(stage, key))) is not None]
        percent_axis(axes, "x", *((-0.03, 1.03) if key == "asr" else zoom(levels, 0.2)))
        axes.set_title(title)
    looks = (("initial", "o", PAPER), ("unlearned", "^", NEUTRAL), ("recovered", "o", NEUTRAL))
    handles = [
        Line2D([], [], linestyle="none", marker=m, color=NEUTRAL, markerfacecolor=f, label=name) for name, m, f in looks
    ]
    drawing.legend(handles=handles, loc="outside lower center", ncols=3)
    return to_svg(drawing, f"from-to-{int(10 * width)}", "ASR and R-Acc of every run at its stages")


def _curves(runs: list[Run], width: float) -> Safe:
    """ASR and R-Acc by round, one line per run; dash and mark tell the runs apart."""
    drawing = canvas(width, 6.0 if width == WIDE else 6.6)
    panels = drawing.subplots(2, 1, sharex=True)
    for axes, key, title in ((panels[0], "asr", "ASR by round"), (panels[1], "r_acc", "R-Acc by round")):
        for index, run in enumerate(runs):
            line = series(run.history, key)
            axes.plot(
                [x for x, _ in line],
                [y for _, y in line],
                color=(RETAINED, FORGET, NEUTRAL)[index % 3],
                linestyle=_DASHES[index],
                linewidth=1.5,
                marker=_SHAPES[index],
                markersize=4.5,
                markevery=max(1, len(line) // 8),
                label=short(run.name, 26),
            )
        levels = [value for run in runs for _, value in series(run.history, key)]
        percent_axis(axes, "y", *((-0.02, 1.02) if key == "asr" else zoom(levels, 0.2)))
        axes.set_title(title)
    panels[1].set_xlabel("round")
    panels[1].xaxis.set_major_locator(round_ticks(width))
    handles, labels = panels[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=3 if width == WIDE else 1, handlelength=3.5)
    return to_svg(drawing, f"curves-{int(10 * width)}", "ASR and R-Acc by round, run by run")


def from_to(runs: list[Run]) -> Safe:
    """Where each run began and where it ended."""
    shown = [run for run in runs if run.stages][:MOST_ROWS]
    drawing = both_widths(_from_to, shown) if shown else None
    caption = "Hollow circles are initial models, triangles unlearned ones, solid circles recovered ones."
    if len(shown) < len(runs):
        caption += f" {len(shown)} of {len(runs)} runs are drawn; the table has all."
    return section("from-to", "From where to where", figure(drawing, caption, "No run has measured a model."))


def curves(runs: list[Run]) -> Safe:
    """How the runs moved."""
    shown = [run for run in runs if run.history]
    title = "Round by round"
    if len(shown) > MOST_CURVES:
        return section(
            "curves",
            title,
            tag(
                "p",
                f"More than {MOST_CURVES} runs would hide each other here; see each run’s own report.",
                class_="note",
            ),
        )
    drawing = both_widths(_curves, shown) if shown else None
    return section(
        "curves", title, figure(drawing, "Dash and mark tell the runs apart.", "No run has recorded a round.")
    )


def verdicts(runs: list[Run]) -> Safe:
    """Each run's own sentence."""
    items = []
    for run in runs:
        asked = join("Asked to forget ", names(run.forget), ". ") if run.forget else None
        status = str(run.summary.get("status") or "unknown")
        state = None if status == "complete" else tag("strong", f" Status: {status}.")
        items.append(
            join(
                tag("dt", tag("bdi", run.name)),
                tag("dd", asked, run.summary.get("verdict") or "No verdict.", state),
            )
        )
    return section("verdicts", "In words", tag("dl", *items, class_="verdicts"))
