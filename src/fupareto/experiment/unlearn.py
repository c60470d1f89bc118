"""How is a request answered?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.experiment.conclude import conclude
from fupareto.experiment.setting import (
    Progress,
    default_request,
    facts,
    federation,
    forgetter,
    no_progress,
    stored_experiment,
)
from fupareto.federation import Federation, Request
from fupareto.federation.history import History
from fupareto.federation.recording import WithHistory
from fupareto.methods.sequential import Sequential
from fupareto.run import budget, loop
from fupareto.run.directory import Run
from fupareto.versions import versions


def unlearn(
    trained: Path,
    out: Path,
    *,
    request: Request | None = None,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    sequential: bool = False,
    measure_every: int = 1,
    resume: bool = False,
    root: Path | None = None,
    device: str = "cpu",
    progress: Progress = no_progress,
) -> Run:
    """Answer a request against the model of a finished run, into the run directory ``out``.

    After a training run that is its model; after another request it is the model that was kept, and those who were
    forgotten take part no more. What is not said is taken from the experiment file; options given here are added to
    the file's when the method, whatever its preset, is the file's. With ``sequential`` the clients are forgotten one
    after the other.
    """
    parent = Run.open(trained)
    experiment = stored_experiment(parent) if parent.config.get("kind") in ("train", "unlearn") else None
    if experiment is None or not parent.finished:
        raise UserError(f"{trained} is not a finished run; finish it with the command that began it, and --resume")
    stage, request = _next(parent, experiment, request)
    weights = parent.load_model(stage)
    if weights is None:
        raise UserError(f"{trained} has lost its model {stage}.safetensors; make it again in another directory")
    return answer(
        experiment,
        weights,
        out,
        request=request,
        chosen=method or experiment.unlearn.method,
        options=options or {},
        sequential=sequential,
        trained=trained,
        measure_every=measure_every,
        resume=resume,
        root=root,
        device=device,
        progress=progress,
    )


def _next(parent: Run, experiment: Experiment, request: Request | None) -> tuple[str, Request]:
    """Return the stage of the model to start from, and the request with those who have left before."""
    if parent.config.get("kind") == "train":
        return "initial", request or default_request(experiment)
    earlier = Request.from_json(parent.request)
    if earlier.partial:
        raise UserError(f"{parent.path} forgot {earlier.words()}; a further request can only follow one for clients")
    if request is None:
        raise UserError(f"{parent.path} has answered a request already; say who is to be forgotten now, with --clients")
    return parent.summary["final"], dataclasses.replace(request, left=(*earlier.left, *earlier.clients))


def answer(
    experiment: Experiment,
    weights: Mapping[str, Tensor],
    out: Path,
    *,
    request: Request,
    chosen: str,
    options: Mapping[str, Any],
    sequential: bool = False,
    trained: Path | None = None,
    measure_every: int = 1,
    resume: bool = False,
    root: Path | None = None,
    device: str = "cpu",
    progress: Progress = no_progress,
) -> Run:
    """Run a method from the model ``weights`` to its end, measure and audit."""
    asked = forgetter(experiment, chosen, options)
    answering = Sequential(asked, len(request.clients)) if sequential else asked
    if not request.partial:
        request.sides([str(i) for i in range(experiment.partition.clients)])
    engine, _ = federation(experiment, request, root, device=device)
    history = History.open(trained / "history") if trained else None
    asked_of: Federation = WithHistory(engine, history) if history else engine
    w0 = engine.layout.flat(weights).to(engine.device)
    answering.init(asked_of, w0, request)  # a request that it cannot answer should leave no run directory behind
    budget.check(answering, engine, *map(len, request.sides(engine.ids)))
    config = {
        "kind": "unlearn",
        "experiment": experiment.model_dump(),
        "method": {"name": chosen, **dataclasses.asdict(answering)},
        "trained": str(trained) if trained else None,
        "versions": versions(),
    }
    place = Run.make(out, config, request.to_json(), resume)
    if not place.finished:
        with progress("retraining" if chosen == "retrain" else "unlearning", answering.budget) as watch:
            outcome = loop.run(
                answering,
                asked_of,
                w0,
                request,
                seed=experiment.seed,
                place=place,
                measure_every=measure_every,
                watch=watch,
            )
        name = f"{chosen}, one by one" if sequential else chosen
        conclude(place, outcome, facts(experiment, name))
    return place
