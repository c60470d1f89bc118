"""How does an experiment file become a federation, a request, and runs?"""

import dataclasses
import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fupareto import data, models, parameters, runner
from fupareto.config import Experiment, validate
from fupareto.errors import UserError
from fupareto.federation import Federation, Request, SimulatedFederation
from fupareto.federation.recording import Recording
from fupareto.history import History, Plan
from fupareto.methods import FedAvg, Method
from fupareto.methods.registry import find, kind
from fupareto.methods.sequential import Sequential
from fupareto.randomness import stream
from fupareto.runner import Watch
from fupareto.runs import Run


def default_request(experiment: Experiment) -> Request:
    """Return the request of the experiment file; a number of clients is drawn by the seed."""
    asked, count = experiment.request, experiment.partition.clients
    if asked.samples or asked.classes:
        samples = {i: tuple(rows) for i, rows in asked.samples.items()}
        return Request(samples=samples, classes=tuple(dict.fromkeys(asked.classes)))
    clients = asked.clients
    if isinstance(clients, int):
        drawn = stream(experiment.seed, "request").choice(count, clients, replace=False)
        clients = [str(i) for i in sorted(drawn)]
    request = Request(tuple(dict.fromkeys(clients)))
    request.sides([str(i) for i in range(count)])
    return request


def federation(
    experiment: Experiment, request: Request | None = None, root: Path | None = None, workers: int | None = None
) -> tuple[SimulatedFederation, Tensor]:
    """Build the clients and a freshly initialised model; with a request, as they are when it is answered.

    The backdoor sits in the clients of the experiment's own request, unless it names others. Once such a client asks
    to be forgotten, its objective sees triggered samples only: what must go is the mark.
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
    marked = _marked(experiment)
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
    build = partial(models.build, experiment.model, tuple(source.x.shape[1:]), source.classes)
    model = build(experiment.seed)
    engine = SimulatedFederation(model, {i: c.splits for i, c in clients.items()}, workers, fresh=build)
    return engine.divided(request) if request else engine, parameters.read(model)


def _marked(experiment: Experiment) -> tuple[str, ...]:
    """Return who carries the backdoor: whom the file names, or the clients of its request."""
    if not experiment.backdoor.enabled:
        return ()
    named = experiment.backdoor.clients
    return default_request(experiment).clients if named is None else tuple(named)


Progress = Callable[[str, int], AbstractContextManager[Watch | None]]  # of a title and a number of rounds


def no_progress(title: str, rounds: int) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def train(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    root: Path | None = None,
    progress: Progress = no_progress,
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Train the federation's model with FedAvg into the run directory ``out``."""
    find(experiment.unlearn.method, experiment.unlearn.options)  # a mistake there should not wait for the training
    config = {"kind": "train", "experiment": experiment.model_dump(), "versions": versions()}
    engine, w = federation(experiment, root=root)
    place = Run.make(out, config, None, resume)
    if not place.finished:
        method = FedAvg(**experiment.train.model_dump(exclude={"record", "keep"}))
        wanted = default_request(experiment)
        about = None if wanted.partial else wanted  # virtual clients are made when the request is answered
        recorded = _recording(experiment, engine, place, say)
        with progress("training", method.budget) as watch:
            outcome = runner.run(
                method, recorded, w, None, seed=experiment.seed, place=place, about=about, measure_every=10, watch=watch
            )
        place.save_summary(runner.summarise(outcome, _facts(experiment, method.name)))
    return place


def _recording(experiment: Experiment, engine: Federation, place: Run, say: Callable[[str], None]) -> Federation:
    """Keep what the methods of ``record`` will need, saying first what it takes."""
    training = experiment.train
    if not training.record:
        return engine
    plan = Plan(
        parts=tuple(dict.fromkeys(training.record)),
        clients=engine.ids,
        rounds=training.rounds,
        keep=training.keep,
        heads=default_request(experiment).clients if "fedau" in training.record else (),
        label_seed=experiment.seed,
    )
    head = engine.layout.head() if "fedau" in training.record else None
    sizes = plan.bytes(engine.layout.size, head.stop - head.start if head else 0)
    parts = ", ".join(f"{part} {_megabytes(size)}" for part, size in sizes.items())
    say(f"Recording for {parts}: {_megabytes(sum(sizes.values()))} in {place.path / 'history'}.")
    return Recording(engine, History.create(place.path / "history", plan, sum(sizes.values())))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


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
    progress: Progress = no_progress,
) -> Run:
    """Answer a request against the model of a training run, into the run directory ``out``.

    What is not said is taken from the experiment file; options given here are added to the file's when the method,
    whatever its preset, is the file's. With ``sequential`` its clients are forgotten one after the other.
    """
    parent = Run.open(trained)
    if not parent.finished or parent.config.get("kind") != "train":
        raise UserError(
            f"{trained} is not a finished training run; finish it with: fupareto train … --out {trained} --resume"
        )
    experiment = stored_experiment(parent)
    chosen = method or experiment.unlearn.method
    request = request or default_request(experiment)
    asked = forgetter(experiment, chosen, options or {})
    answering = Sequential(asked, len(request.clients)) if sequential else asked
    if not request.partial:
        request.sides([str(i) for i in range(experiment.partition.clients)])
    engine, _ = federation(experiment, request, root)
    engine.history = History.open(trained / "history")
    weights = parent.load_model("initial")
    if weights is None:
        raise UserError(f"{trained} has lost its model initial.safetensors; train again into another directory")
    w0 = engine.layout.flat(weights)
    answering.init(engine, w0, request)  # a request that it cannot answer should leave no run directory behind
    config = {
        "kind": "unlearn",
        "experiment": experiment.model_dump(),
        "method": {"name": chosen, **dataclasses.asdict(answering)},
        "trained": str(trained),
        "versions": versions(),
    }
    place = Run.make(out, config, request.to_json(), resume)
    if not place.finished:
        with progress("unlearning", answering.budget) as watch:
            outcome = runner.run(
                answering,
                engine,
                w0,
                request,
                seed=experiment.seed,
                place=place,
                measure_every=measure_every,
                watch=watch,
            )
        name = f"{chosen}, one by one" if sequential else chosen
        place.save_summary(runner.summarise(outcome, _facts(experiment, name)))
    return place


def forgetter(experiment: Experiment, chosen: str, options: Mapping[str, Any]) -> Method:
    """Return the method: its own defaults, then what it takes from the training, then the file's, then ``options``."""
    same = chosen.partition(":")[0] == experiment.unlearn.method.partition(":")[0]
    training = experiment.train.model_dump()
    inherited = {key: training[key] for key in kind(chosen).from_training}
    return find(chosen, {**inherited, **(experiment.unlearn.options if same else {}), **options})


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
        part, (engine, _) = "", federation(experiment, root=root)
        wanted = default_request(experiment)
        sides = ((), engine.ids) if wanted.partial else wanted.sides(engine.ids)
    else:
        request = Request.from_json(place.request)
        engine, _ = federation(experiment, request, root)
        sides, part = request.sides(engine.ids), request.words()
    facts = {key: place.summary.get(key) for key in FACTS}
    summary = runner.summarise(runner.Outcome(engine, place, sides, part), facts)
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
