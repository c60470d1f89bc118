"""The command audit: measure and attack the models of a finished run."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import click
import typer

from fupareto import parse
from fupareto.cli.common import Command as Base
from fupareto.cli.common import FailOn, Json, Quiet, Root, TrustCode, finish, progress, say, trusting


class Command(Base):
    """A command with ``--retrain``, which may stand without a number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``--retrain`` without a number as ``--retrain 1``."""
        full = []
        for word, after in pairwise([*args, ""]):
            full += [word, "1"] if word == "--retrain" and not after.lstrip("-").isdigit() else [word]
        return super().parse_args(ctx, full)


def audit(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    tier: Annotated[
        int,
        typer.Option(
            min=1, max=3, help="1: attacks without shadow models; 2: RMIA, with a few shadow models; 3: LiRA."
        ),
    ] = 1,
    shadows: Annotated[
        int | None, typer.Option(max=10_000, help="Shadow models to train.", show_default="4 at tier 2, 64 at tier 3")
    ] = None,
    retrain: Annotated[
        int,
        typer.Option(
            min=0,
            max=2,
            help="Retrain without the forgotten data, and compare with that (1 if no number is given); 2: two models, "
            "which say how much retrained models differ.",
        ),
    ] = 0,
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="Run directory of the method retrain on the same request, to compare with (repeatable: two seeds)."
        ),
    ] = None,
    dormancy: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100_000,
            metavar="ROUNDS",
            help="Train on with the retained clients for so many rounds, and see what comes back; 0: do not.",
            show_default="40, if the run had as many rounds",
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(help="Limit of a check, e.g. --threshold asr=0.02 (repeatable).")
    ] = None,
    trust_code: TrustCode = False,
    root: Root = None,
    quiet: Quiet = False,
    as_json: Json = False,
    fail_on: FailOn = None,
) -> None:
    """Measure and attack a run's models again, and write summary.json, audit.json and the report."""
    from fupareto import experiment
    from fupareto.audit.checks import Thresholds
    from fupareto.run.directory import Run

    trusting(trust_code)
    place = Run.open(run)
    experiment.audit(
        place,
        tier=tier,
        shadows=shadows,
        retrain=retrain,
        reference=reference or (),
        dormancy=dormancy,
        thresholds=Thresholds.of(parse.options(threshold or [], "--threshold")),
        host=experiment.Host(root, progress=progress(quiet), say=partial(say, quiet)),
    )
    finish(place, as_json, fail_on)
