"""Commands that make runs: demo, train, unlearn."""

import shutil
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fupareto import parse
from fupareto.cli.common import Device, Json, Out, Quiet, Resume, Root, finish, progress, say
from fupareto.errors import UserError


def demo(
    seed: Annotated[int, typer.Option(help="Everything random comes from it.")] = 0,
    out: Out = Path("runs/demo"),
    resume: Resume = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train ten clients on real handwritten digits, forget two of them, and show the result (about a minute)."""
    from fupareto import experiment as experiments
    from fupareto.config import validate
    from fupareto.runs import Run

    experiment = validate({"seed": seed}, "--seed")
    if not resume and Run.begun(out / "training"):
        stored = experiments.stored_experiment(Run.open(out / "training"))
        if stored.model_copy(update={"seed": seed}) != experiment:
            raise UserError(f"{out} holds another run; choose another --out")
        if (out / "certificate.json").exists():
            raise UserError(f"{out} has a certificate, which a new demo would delete; choose another --out")
        shutil.rmtree(out)  # an earlier demo: made by this command, and made again in a minute
    if not (resume and Run.begun(out / "training")):
        Run.check_free(out)
    say(quiet, f"Training {experiment.partition.clients} clients on {experiment.data.source}, seed {seed}.")
    experiments.train(experiment, out / "training", resume=resume, progress=progress(quiet))
    forget = ", ".join(experiments.default_request(experiment).clients)
    say(quiet, f"Clients {forget} carry a backdoor and ask to be forgotten.")
    run = experiments.unlearn(out / "training", out, resume=resume, progress=progress(quiet))
    say(quiet, "Retraining without them, to see what a model looks like that never met them.")
    experiments.audit(run, retrain=True, progress=progress(quiet))
    finish(run, as_json)


def train(
    experiment: Annotated[Path, typer.Argument(help="Experiment file (TOML); see experiments/.")],
    out: Out,
    seed: Annotated[int | None, typer.Option(help="Seed instead of the file's.")] = None,
    record: Annotated[
        str | None, typer.Option(help="Keep the history that methods need, e.g. federaser,fupga,fedau.")
    ] = None,
    resume: Resume = False,
    root: Root = None,
    device: Device = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a federated model with FedAvg."""
    from fupareto import config
    from fupareto import experiment as experiments

    loaded = config.load(experiment)
    if seed is not None:
        loaded = config.validate({**loaded.model_dump(), "seed": seed}, "--seed")
    if record is not None:
        raw = loaded.model_dump()
        raw["train"]["record"] = parse.listed(record)
        loaded = config.validate(raw, "--record")
    run = experiments.train(
        loaded, out, resume=resume, root=root, device=device, progress=progress(quiet), say=partial(say, quiet)
    )
    finish(run, as_json)


def unlearn(
    trained: Annotated[Path, typer.Argument(help="Run directory of `fupareto train`, or of an earlier request.")],
    out: Out,
    clients: Annotated[
        str | None, typer.Option(help="Who is to be forgotten, e.g. 3,7.", show_default="the experiment's request")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help='Samples to forget: JSON, client to row numbers, e.g. {"3": [0, 17]}.')
    ] = None,
    classes: Annotated[str | None, typer.Option(help="Classes to forget, e.g. 4 or 4,7.")] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Forget the clients one after the other, each from the last result.")
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(help="fupareto, fedosd, retrain, … (see docs/methods.md), or package.module:Class."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A method's option, e.g. --set lr=0.01 (repeatable).")
    ] = None,
    resume: Resume = False,
    root: Root = None,
    device: Device = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Forget clients, recover, audit, and write the report."""
    from fupareto import experiment as experiments

    run = experiments.unlearn(
        trained,
        out,
        request=parse.request(clients, samples, classes),
        method=method,
        options=parse.options(set_ or []),
        sequential=sequential,
        resume=resume,
        root=root,
        device=device,
        progress=progress(quiet),
    )
    finish(run, as_json)
