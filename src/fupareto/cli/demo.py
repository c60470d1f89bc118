"""The command demo: train, unlearn and audit on the embedded digits."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from fupareto.cli.common import FailOn, Json, Out, Quiet, Resume, finish, progress, say
from fupareto.errors import UserError


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
    from fupareto.config import validate
    from fupareto.run.directory import Run

    experiment = validate({"seed": seed}, "--seed")
    if not resume and Run.begun(out / "training"):
        stored = experiments.stored_experiment(Run.open(out / "training"))
        if stored.model_copy(update={"seed": seed}) != experiment:
            raise UserError(f"{out} already contains another run; choose another --out")
        if (out / "certificate.json").exists():
            raise UserError(f"{out} has a certificate, which a new demo would delete; choose another --out")
        shutil.rmtree(out)  # an earlier demo, which this command makes again
    if not (resume and Run.begun(out / "training")):
        Run.check_free(out)
    say(quiet, f"Training {experiment.partition.clients} clients on {experiment.data.source}, seed {seed}.")
    experiments.train(experiment, out / "training", resume=resume, progress=progress(quiet))
    forget = ", ".join(experiments.default_request(experiment).clients)
    say(quiet, f"Clients {forget} carry a backdoor and are to be forgotten.")
    run = experiments.unlearn(out / "training", out, resume=resume, attack=False, progress=progress(quiet))
    say(quiet, "Retraining twice without them, to compare with, and training on with the retained clients.")
    experiments.audit(run, retrain=2, dormancy=40, progress=progress(quiet))
    finish(run, as_json, fail_on)
