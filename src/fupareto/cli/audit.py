"""The command audit: measure and attack the models of a finished run."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fupareto import parse
from fupareto.cli.common import FailOn, Json, Quiet, Root, finish, progress, say


def audit(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    tier: Annotated[
        int,
        typer.Option(
            min=1, max=3, help="1: attacks without shadow models; 2: RMIA, with a few shadow models; 3: LiRA."
        ),
    ] = 1,
    shadows: Annotated[
        int | None, typer.Option(help="Shadow models to train.", show_default="4 at tier 2, 64 at tier 3")
    ] = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Retrain without the forgotten data, as the baseline to compare with.")
    ] = False,
    reference: Annotated[
        Path | None,
        typer.Option(help="Run directory of method retrain for the same request, as the baseline to compare with."),
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(help="Limit of a check, e.g. --threshold asr=0.02 (repeatable).")
    ] = None,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
    fail_on: FailOn = None,
) -> None:
    """Measure and attack a run's models again, and write summary.json, audit.json and the report."""
    from fupareto import experiment
    from fupareto.audit.checks import Thresholds
    from fupareto.run.directory import Run

    place = Run.open(run)
    experiment.audit(
        place,
        root,
        tier=tier,
        shadows=shadows,
        retrain=retrain,
        reference=reference,
        thresholds=Thresholds.of(parse.options(threshold or [], "--threshold")),
        progress=progress(quiet),
        say=partial(say, quiet),
    )
    finish(place, as_json, fail_on)
