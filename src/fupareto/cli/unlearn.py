"""The command unlearn: make a trained model forget clients, samples or classes."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fupareto import parse
from fupareto.cli.common import (
    Classes,
    Device,
    FailOn,
    Json,
    Log,
    Out,
    Quiet,
    Resume,
    Root,
    Samples,
    TrustCode,
    Yes,
    agree,
    finish,
    progress,
    requested,
    say,
    trusting,
)


def unlearn(
    trained: Annotated[Path, typer.Argument(help="Run directory of `fupareto train`, or of an earlier request.")],
    out: Out,
    clients: Annotated[
        list[str] | None,
        typer.Option(help="Clients to forget, e.g. 3,7 (repeatable).", show_default="the experiment's request"),
    ] = None,
    samples: Samples = None,
    group: Annotated[
        int,
        typer.Option(min=0, help="Forget at least so many samples of each client, with others of the same client."),
    ] = 0,
    classes: Classes = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential", help="Forget the clients one after the other, each starting from the previous result."
        ),
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(help="fupareto, fedosd, retrain, … (see docs/methods.md), or package.module:Class."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the method, e.g. --set lr=0.01 (repeatable).")
    ] = None,
    resume: Resume = False,
    trust_code: TrustCode = False,
    root: Root = None,
    device: Device = "cpu",
    log: Log = None,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: Json = False,
    fail_on: FailOn = None,
) -> None:
    """Forget clients, samples or classes, recover, audit, and write the report."""
    from fupareto import experiment as experiments
    from fupareto.tracking import Tracking

    trusting(trust_code)
    with Tracking(log or (), out) as tracking:
        run = experiments.unlearn(
            trained,
            out,
            request=requested(clients, samples, classes),
            method=method,
            options=parse.nested(set_ or []),
            group=group,
            sequential=sequential,
            resume=resume,
            host=experiments.Host(
                root, device, tracking.beside(progress(quiet)), say=partial(say, quiet), agree=agree(yes)
            ),
        )
    finish(run, as_json, fail_on)
