"""Figures of a report, by the name that is their place on the page and the name of their file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fupareto.files import make_directory, put
from fupareto.report import style, svg
from fupareto.report.figures import by_round, clients, comparison, cost, evidence, membership, plane
from fupareto.report.markup import Safe, decimal
from fupareto.report.view import RunView, moved

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One figure: how it is drawn at a width in inches, and its text alternative."""

    draw: svg.Draw
    alt: Callable[[Any], str]


def _way(run: RunView) -> str:
    return f"{run.forgetting_title} from {moved(run, run.forgetting)}, R-Acc from {moved(run, 'r_acc')}"


def _mean(run: RunView) -> str:
    found = run.models("membership")
    means = [f"{stage} {decimal(mean)}" for stage in found if (mean := run.mean_leak(stage)) is not None]
    return f"AUC of the membership attack by client and model; means: {', '.join(means) or 'not known'}"


def _runs(what: str) -> Callable[[list[RunView]], str]:
    return lambda runs: f"{what} of {len(runs)} runs; the table has the numbers"


OF_A_RUN: dict[str, Drawing] = {
    "trajectory": Drawing(
        plane.trajectory, lambda run: f"Trajectory in the plane of forgetting and usefulness: {_way(run)}"
    ),
    "convergence": Drawing(by_round.convergence, lambda run: f"Round by round: {_way(run)}"),
    "clients": Drawing(clients.clients, lambda _: "Every client before and after; the tables have the numbers"),
    "membership": Drawing(membership.membership, _mean),
    "dormancy": Drawing(
        evidence.dormancy, lambda _: "What each model remembers while the retained clients train it on"
    ),
    "relearning": Drawing(
        evidence.relearning, lambda _: "What each model knows while it is trained on the forgotten data"
    ),
    "conflicts": Drawing(evidence.conflict, lambda _: "By round, how far the update opposed the clients’ gradients"),
    "search": Drawing(by_round.search, lambda _: "By round, the phase, the steps tried and the step accepted"),
    "cost": Drawing(cost.cost, lambda _: "Rounds, time and traffic of this run and of retraining"),
}
OF_RUNS: dict[str, Drawing] = {
    "from-to": Drawing(comparison.from_to, _runs("What is remembered and R-Acc at the stages")),
    "trajectories": Drawing(plane.trajectories, _runs("Trajectories in the plane of forgetting and usefulness")),
    "curves": Drawing(comparison.curves, _runs("What is remembered and R-Acc by round")),
    "membership-runs": Drawing(membership.membership_runs, _runs("AUC of the membership attack on the final models")),
}


def inline(name: str, subject: RunView | list[RunView]) -> Safe | None:
    """A figure as part of a page, `None` where there is nothing to draw."""
    drawing = (OF_A_RUN if isinstance(subject, RunView) else OF_RUNS)[name]
    return svg.inline(drawing.draw, subject, name, drawing.alt(subject))


def figures_of(
    summary: dict[str, Any],
    rounds: list[dict[str, Any]],
    config: dict[str, Any] | None = None,
    audit: dict[str, Any] | None = None,
) -> "dict[str, Figure]":
    """Every figure that a run's page has, by name, in light colours and as wide as a desk."""
    run = RunView(str(summary.get("name") or "unnamed"), summary, rounds, config or {}, audit or {})
    with style.applied():
        drawn = {name: drawing.draw(run, style.WIDE) for name, drawing in OF_A_RUN.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def write_figures(
    directory: Path,
    summary: dict[str, Any],
    rounds: list[dict[str, Any]],
    config: dict[str, Any] | None = None,
    audit: dict[str, Any] | None = None,
) -> list[Path]:
    """Write every figure of a run's page as NAME.svg and NAME.png, for a paper, and return the paths."""
    make_directory(directory)
    paths = []
    for name, figure in figures_of(summary, rounds, config, audit).items():
        with style.applied():
            for file, data in svg.to_files(figure, name).items():
                put(directory / file, data)
                paths.append(directory / file)
    return paths
