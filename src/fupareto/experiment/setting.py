"""Federation, request and method of an experiment file."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fupareto import data, models, parameters, trust
from fupareto.config import Experiment, merged, validate
from fupareto.data.tables import Columns
from fupareto.errors import UserError
from fupareto.federation import Federation, Request, SimulatedFederation
from fupareto.federation.wrappers import Without
from fupareto.methods import FedAvg, Method
from fupareto.methods.registry import built_in, find
from fupareto.randomness import stream
from fupareto.run.directory import Run
from fupareto.tasks import TASKS, Classes, task_of
from fupareto.versions import versions


def default_request(experiment: Experiment) -> Request:
    """Return the request of an experiment file; where it gives a number of clients, they are drawn by the seed."""
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
    """Build the simulated federation of an experiment, and a newly initialised model.

    The clients of the experiment's own request carry the backdoor, unless ``backdoor.clients`` names others. The
    objective of a forget client that carries it has triggered samples only, since the backdoor must be forgotten.

    Args:
        experiment: The experiment.
        request: Request to be answered, for which the federation is divided; None for a training.
        root: Directory of the data sets.
        workers: Number of clients that compute in parallel; by default one per core.
        device: Device of the data and models.

    Returns:
        The federation, and the vector of the model.
    """
    task = None if experiment.task is None else task_of(experiment.task)
    source = data.load(
        experiment.data.source, root, experiment.data.samples, experiment.seed, task, _columns(experiment)
    )
    parts = _parts(experiment, source)
    marked = marked_clients(experiment)
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
    plain = source.x.is_floating_point() and isinstance(source.task, Classes)
    shape = tuple(source.x.shape[1:])
    build = partial(models.build, experiment.model, shape, source.outputs, check=plain, lora=experiment.lora)
    model = build(experiment.seed)
    splits = {i: c.splits for i, c in clients.items()}
    engine = SimulatedFederation(model, splits, workers, build, device, source.task)
    return engine.divided(request) if request else engine, parameters.read(model).to(engine.device)


def _columns(experiment: Experiment) -> Columns:
    """Return the columns of a .csv file that the experiment names."""
    target, client = experiment.data.target, experiment.data.client
    return Columns((target,) if isinstance(target, str) else tuple(target or ()), client or "")


def reachable(engine: Federation, gone: Sequence[str]) -> Federation:
    """Return the federation in which some clients can no longer be reached."""
    return Without(engine, gone) if gone else engine


def _parts(experiment: Experiment, source: data.Dataset) -> list[NDArray[np.int64]]:
    """Return the rows of every client: drawn by the partition, or as the source says."""
    partition = experiment.partition
    if partition.kind == "given":
        if source.client is None:
            raise UserError(
                f'{source.name} does not say which client owns which rows, as kind = "given" in [partition] needs; add '
                "an array client to the .npz file or a column client to the .csv file, or choose another kind"
            )
        count = int(source.client.max()) + 1
        if count != partition.clients:
            raise UserError(f"{source.name} has {count} clients; set clients = {count} in [partition]")
        return [np.flatnonzero(source.client == k) for k in range(count)]
    labels = source.y.numpy()
    if partition.kind != "iid" and labels.ndim > 1:
        raise UserError(
            f"a partition by {partition.kind} needs one class per sample, which the task {source.task.label} does not "
            'have; set kind = "iid" or "given" in [partition]'
        )
    return data.partition(
        labels if labels.ndim == 1 else np.zeros(len(labels), np.int64),
        partition.clients,
        partition.kind,
        stream(experiment.seed, "partition"),
        alpha=partition.alpha,
        classes_per_client=partition.classes_per_client,
        balance=partition.balance,
    )


def marked_clients(experiment: Experiment) -> tuple[str, ...]:
    """Return the clients that carry the backdoor: those that the file names, or the clients of its request."""
    if not experiment.backdoor.enabled:
        return ()
    named = experiment.backdoor.clients
    return default_request(experiment).clients if named is None else tuple(named)


def forgetter(experiment: Experiment, chosen: str, options: Mapping[str, Any]) -> Method:
    """Return an unlearning method with its options.

    Later sources take precedence: the defaults of the method, the settings that it inherits from the training, the
    options in the file where the file names the same method, and ``options``.

    Args:
        experiment: The experiment.
        chosen: Name of the method, with or without a preset.
        options: Options that are set explicitly.
    """
    same = chosen.partition(":")[0] == experiment.unlearn.method.partition(":")[0]
    return find(chosen, merged(experiment.unlearn.options if same else {}, options), training(experiment))


def training(experiment: Experiment) -> FedAvg:
    """Return the training of an experiment's initial model."""
    method = find(FedAvg.name, experiment.train.model_dump(exclude={"method", "record", "keep"}))
    assert isinstance(method, FedAvg)
    return method


def stored_experiment(place: Run, instead: str = "") -> Experiment:
    """Return the experiment that a run was made from; refuse runs from Python or over Flower, which have none.

    Args:
        place: The run.
        instead: Python call that does the same for such a run, for the message.
    """
    config = place.config
    if config.get("kind") == "python":
        over = "over Flower" if "flwr" in config.get("versions", {}) else "from Python"
        raise UserError(
            f"{place.path} was made {over}: its clients are defined in a program, not in an experiment file."
            + ("" if place.finished else " It is not finished; continue it in that program, with resume=True.")
            + (f" In that program, call: {instead}" if instead else "")
        )
    if "experiment" not in config:
        raise UserError(f"{place.path / 'config.toml'} is damaged: the section [experiment] is missing")
    experiment = validate(config["experiment"], str(place.path / "config.toml"))
    if experiment.model not in models.MODELS and not experiment.model.startswith(models.HUGGING_FACE):
        trust.check(experiment.model, "model", place.path / "config.toml")
    for code in experiment.task_code:
        if code not in TASKS:
            trust.check(code, "task", place.path / "config.toml")
    return experiment


def stored_method(place: Run, name: str) -> str:
    """Return the name of a method that only the configuration of a run names; refuse code that is not trusted."""
    if not built_in(name):
        trust.check(name, "method", place.path / "config.toml")
    return name


def facts(experiment: Experiment, method: str) -> dict[str, Any]:
    """Return the entries of a summary that are not measured."""
    return {
        "name": experiment.name,
        "method": method,
        "dataset": experiment.data.source,
        "model": experiment.model,
        "seed": experiment.seed,
        "versions": versions(),
    }
