"""How does an experiment file become a federation, a request, and runs?"""

import dataclasses
import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fupareto import data, models, parameters, runner
from fupareto.config import Experiment, validate
from fupareto.errors import UserError
from fupareto.federation import Request, SimulatedFederation
from fupareto.methods import FedAvg
from fupareto.methods.registry import find
from fupareto.randomness import stream
from fupareto.runner import Watch
from fupareto.runs import Run


def default_request(experiment: Experiment) -> Request:
    """Return the request of the experiment file; a number of clients is drawn by the seed."""
    asked, count = experiment.request.clients, experiment.partition.clients
    if isinstance(asked, int):
        drawn = stream(experiment.seed, "request").choice(count, asked, replace=False)
        asked = [str(i) for i in sorted(drawn)]
    request = Request(tuple(dict.fromkeys(asked)))
    request.sides([str(i) for i in range(count)])
    return request


def federation(
    experiment: Experiment, request: Request | None = None, root: Path | None = None, workers: int | None = None
) -> tuple[SimulatedFederation, Tensor]:
    """Build the clients and a freshly initialised model; with a request, as they are when it is answered.

    The backdoor sits in the clients of the experiment's own request. Once such a client asks to be forgotten, its
    objective sees triggered samples only: what must go is the mark.
    """
    source = data.load(experiment.data.source, root, experiment.data.samples, experiment.seed)
    partition = experiment.partition
    parts = data.partition(
        source.y.numpy(),
        partition.clients,
        partition.kind,
        stream(experiment.seed, "partition"),
        alpha=partition.alpha,
        classes_per_client=partition.classes_per_client,
        balance=partition.balance,
    )
    marked = default_request(experiment).clients if experiment.backdoor.enabled else ()
    if marked and source.x.dim() != 4:
        raise UserError(
            f"the backdoor needs images, but {source.name} has samples of shape {tuple(source.x.shape[1:])}; "
            "set enabled = false in [backdoor]"
        )
    clients = data.clients(
        source,
        parts,
        experiment.seed,
        marked=marked,
        forget=request.clients if request else (),
        portion=experiment.backdoor.portion,
        asr_split=experiment.backdoor.asr_split,
        batch_size=experiment.train.batch_size,
    )
    model = models.build(experiment.model, tuple(source.x.shape[1:]), source.classes, experiment.seed)
    engine = SimulatedFederation(model, {i: c.splits for i, c in clients.items()}, workers)
    return engine, parameters.read(model)


Progress = Callable[[str, int], AbstractContextManager[Watch | None]]  # of a title and a number of rounds


def _no_progress(title: str, rounds: int) -> AbstractContextManager[None]:
    return nullcontext()


def train(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    root: Path | None = None,
    progress: Progress = _no_progress,
) -> Run:
    """Train the federation's model with FedAvg into the run directory ``out``."""
    find(experiment.unlearn.method, experiment.unlearn.options)  # a mistake there should not wait for the training
    config = {"kind": "train", "experiment": experiment.model_dump(), "versions": versions()}
    engine, w = federation(experiment, root=root)
    place = Run.make(out, config, None, resume)
    if not place.finished:
        method = FedAvg(**experiment.train.model_dump())
        about = default_request(experiment)
        with progress("training", method.budget) as watch:
            outcome = runner.run(
                method, engine, w, None, seed=experiment.seed, place=place, about=about, measure_every=10, watch=watch
            )
        place.save_summary(runner.summarise(outcome, _facts(experiment, method.name)))
    return place


def unlearn(
    trained: Path,
    out: Path,
    *,
    clients: tuple[str, ...] | None = None,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    resume: bool = False,
    root: Path | None = None,
    progress: Progress = _no_progress,
) -> Run:
    """Answer a request against the model of a training run, into the run directory ``out``.

    What is not said is taken from the experiment file; options given here are added to the file's when the method,
    whatever its preset, is the file's.
    """
    parent = Run.open(trained)
    if not parent.finished or parent.config.get("kind") != "train":
        raise UserError(
            f"{trained} is not a finished training run; finish it with: fupareto train … --out {trained} --resume"
        )
    experiment = stored_experiment(parent)
    chosen = method or experiment.unlearn.method
    same = chosen.partition(":")[0] == experiment.unlearn.method.partition(":")[0]
    inherited = experiment.unlearn.options if same else {}
    forgetter = find(chosen, {**inherited, **(options or {})})
    request = default_request(experiment) if clients is None else Request(tuple(dict.fromkeys(clients)))
    request.sides([str(i) for i in range(experiment.partition.clients)])
    engine, _ = federation(experiment, request, root)
    weights = parent.load_model("initial")
    if weights is None:
        raise UserError(f"{trained} has lost its model initial.safetensors; train again into another directory")
    w0 = engine.layout.flat(weights)
    config = {
        "kind": "unlearn",
        "experiment": experiment.model_dump(),
        "method": {"name": chosen, **dataclasses.asdict(forgetter)},
        "trained": str(trained),
        "versions": versions(),
    }
    place = Run.make(out, config, {"clients": list(request.clients)}, resume)
    if not place.finished:
        with progress("unlearning", forgetter.budget) as watch:
            outcome = runner.run(forgetter, engine, w0, request, seed=experiment.seed, place=place, watch=watch)
        place.save_summary(runner.summarise(outcome, _facts(experiment, chosen)))
    return place


def audit(place: Run, root: Path | None = None) -> dict[str, Any]:
    """Measure the models of a finished run anew, write and return the summary."""
    if not place.finished:
        raise UserError(f"{place.path} has not come to its end; continue it with --resume first")
    kind = place.config.get("kind")
    if kind not in ("train", "unlearn"):
        raise UserError(
            f"{place.path} was made from Python, which has its clients: audit it there, with result.audit()"
        )
    experiment = stored_experiment(place)
    if kind == "train":
        engine, _ = federation(experiment, root=root)
        sides = default_request(experiment).sides(engine.ids)
    else:
        request = Request(tuple(place.request["clients"]))
        engine, _ = federation(experiment, request, root)
        sides = request.sides(engine.ids)
    facts = {key: place.summary.get(key) for key in FACTS}
    summary = runner.summarise(runner.Outcome(engine, place, sides), facts)
    place.save_summary(summary)
    return summary


def stored_experiment(place: Run) -> Experiment:
    """Return the experiment that a run directory was made from."""
    return validate(place.config.get("experiment", {}), str(place.path / "config.toml"))


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {
        "fupareto": metadata.version("fupareto"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


FACTS = ("name", "method", "dataset", "model", "seed", "versions", "created")


def _facts(experiment: Experiment, method: str) -> dict[str, Any]:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    values = (experiment.name, method, experiment.data.source, experiment.model, experiment.seed, versions(), created)
    return dict(zip(FACTS, values, strict=True))
