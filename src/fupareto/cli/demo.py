"""The command demo: train, unlearn and audit on the embedded digits."""

from pathlib import Path
from typing import Annotated

import typer

from fupareto.cli.common import FailOn, Json, Out, Quiet, Resume, finish, progress, say


def demo(
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    out: Out = Path("runs/demo"),
    resume: Resume = False,
    quiet: Quiet = False,
    as_json: Json = False,
    fail_on: FailOn = None,
) -> None:
    """Train ten clients on real handwritten digits, forget two of them, and show the result (about a minute)."""
    from fupareto import experiment as experiments
    from fupareto.cli.earlier import discard, made_by_demo, mark
    from fupareto.config import validate
    from fupareto.run.directory import Run

    experiment = validate({"seed": seed}, "--seed")
    if not resume and made_by_demo(out):
        discard(out)  # an earlier demo, which this command makes again
    if not (resume and Run.begun(out / "training")):
        Run.check_free(out)
        mark(out)
    host = experiments.Host(progress=progress(quiet))
    say(quiet, f"Training {experiment.partition.clients} clients on {experiment.data.source}, seed {seed}.")
    experiments.train(experiment, out / "training", resume=resume, host=host)
    forget = ", ".join(experiments.default_request(experiment).clients)
    say(quiet, f"Clients {forget} carry a backdoor and are to be forgotten.")
    run = experiments.unlearn(out / "training", out, resume=resume, attack=False, host=host)
    say(quiet, "Retraining twice without them, to compare with, and training on with the retained clients.")
    experiments.audit(run, retrain=2, dormancy=40, host=host)
    finish(run, as_json, fail_on)
