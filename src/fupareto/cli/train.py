"""The command train: train a federated model from an experiment file."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fupareto import parse
from fupareto.cli.common import Device, Json, Log, Out, Quiet, Resume, Root, Yes, agree, finish, progress, say


def train(
    experiment: Annotated[Path, typer.Argument(help="Experiment file (TOML), or demo for the built-in experiment.")],
    out: Out,
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the seed in the file.")] = None,
    record: Annotated[
        str | None,
        typer.Option(help="Record the training history that these methods need, e.g. rewind,federaser,fupga,fedau."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set any key of the experiment file, e.g. --set train.rounds=10 (repeatable)."),
    ] = None,
    resume: Resume = False,
    root: Root = None,
    device: Device = "cpu",
    log: Log = None,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a federated model with FedAvg."""
    from fupareto import config
    from fupareto import experiment as experiments
    from fupareto.tracking import Tracking

    loaded = config.load(experiment)
    if set_:
        loaded = config.validate(config.merged(loaded.model_dump(), parse.nested(set_)), "--set")
    if seed is not None:
        loaded = config.validate({**loaded.model_dump(), "seed": seed}, "--seed")
    if record is not None:
        raw = loaded.model_dump()
        raw["train"]["record"] = parse.listed(record)
        loaded = config.validate(raw, "--record")
    with Tracking(log or (), out) as tracking:
        run = experiments.train(
            loaded,
            out,
            resume=resume,
            host=experiments.Host(
                root, device, tracking.beside(progress(quiet)), say=partial(say, quiet), agree=agree(yes)
            ),
        )
    finish(run, as_json)
