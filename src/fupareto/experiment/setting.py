"""Who takes part in an experiment, what is asked of them, and how is it told what is going on?"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from fupareto import data, models, parameters
from fupareto.config import Experiment, validate
from fupareto.errors import UserError
from fupareto.federation import Request, SimulatedFederation
from fupareto.methods import Method
from fupareto.methods.registry import find, kind
from fupareto.randomness import stream
from fupareto.run.directory import Run
from fupareto.run.loop import Watch
from fupareto.versions import versions

Progress = Callable[[str, int], AbstractContextManager[Watch | None]]  # of a title and a number of rounds


def no_progress(title: str, rounds: int) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


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
    experiment: Experiment,
    request: Request | None = None,
    root: Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
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
    engine = SimulatedFederation(model, {i: c.splits for i, c in clients.items()}, workers, build, device)
    return engine.divided(request) if request else engine, parameters.read(model).to(engine.device)


def _marked(experiment: Experiment) -> tuple[str, ...]:
    """Return who carries the backdoor: whom the file names, or the clients of its request."""
    if not experiment.backdoor.enabled:
        return ()
    named = experiment.backdoor.clients
    return default_request(experiment).clients if named is None else tuple(named)


def forgetter(experiment: Experiment, chosen: str, options: Mapping[str, Any]) -> Method:
    """Return the method: its own defaults, then what it takes from the training, then the file's, then ``options``."""
    same = chosen.partition(":")[0] == experiment.unlearn.method.partition(":")[0]
    training = {**experiment.train.model_dump(), "training_rounds": experiment.train.rounds}
    inherited = {key: training[key] for key in kind(chosen).from_training}
    return find(chosen, {**inherited, **(experiment.unlearn.options if same else {}), **options})


def stored_experiment(place: Run) -> Experiment:
    """Return the experiment that a run directory was made from."""
    return validate(place.config.get("experiment", {}), str(place.path / "config.toml"))


FACTS = ("name", "method", "dataset", "model", "seed", "versions", "created")


def facts(experiment: Experiment, method: str) -> dict[str, Any]:
    """Return what a summary says of a run besides its numbers."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    values = (experiment.name, method, experiment.data.source, experiment.model, experiment.seed, versions(), created)
    return dict(zip(FACTS, values, strict=True))
