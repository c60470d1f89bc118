"""Python API: simulate a federation, train a model, make it forget, audit the result.

Every run of a method goes through this module. Programs and ``flower`` call :func:`train` and :func:`unlearn`;
``experiment`` calls :func:`learn` and :func:`answer`, on which they are built.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fupareto.audit.checks import Thresholds
from fupareto.errors import UserError, did_you_mean
from fupareto.federation import Federation, Request, SimulatedFederation
from fupareto.federation.history import PARTS, Plan
from fupareto.federation.reading import splits_of
from fupareto.methods import FedAvg, FUPareto, Method
from fupareto.methods.registry import chosen
from fupareto.result import Model, References, Result, began
from fupareto.run import execute
from fupareto.run.execute import Progress, Settings
from fupareto.run.loop import Watch
from fupareto.run.start import Start, origin
from fupareto.tasks import Task, task_of
from fupareto.tasks.samples import Collate
from fupareto.versions import versions

__all__ = ["Result", "answer", "audit", "learn", "simulate", "train", "unlearn"]

Forget = Sequence[str] | Request
TaskLike = Task | type[Task] | str | Mapping[str, Any] | None


def simulate(
    model: nn.Module,
    clients: Mapping[str, tuple[Any, Any] | Mapping[str, Any]],
    workers: int | None = None,
    fresh: Callable[[int], nn.Module] | None = None,
    device: str | torch.device = "cpu",
    task: TaskLike = None,
    collate: Collate | None = None,
) -> SimulatedFederation:
    """Return a federation whose clients are simulated in this process.

    Args:
        model: The model that clients train. Its architecture and frozen parameters are used; the weights to start from
            are given to :func:`train` and :func:`unlearn`.
        clients: Mapping from client id to (train set, test set), or to named sets such as ``{"train": …}``. A set is a
            pair (inputs, targets), a dict of tensors with ``labels``, a torch Dataset or list of (input, target) pairs
            or of such dicts, or a DataLoader, whose data set is used. Sets are read into memory once; a data set that
            draws its samples anew, as random augmentation does, is drawn again for every epoch of training.
        workers: Number of clients that compute in parallel; by default one per core.
        fresh: Function of a seed that returns a newly initialised model, for methods that need one, such as retrain; it
            must have the layers of ``model``, with the same ones frozen. By default the layers of ``model`` are reset.
        device: Device of the data and models, such as "cuda".
        task: What samples, outputs and losses are: "classes" (the default), "binary", "labels", "numbers", "tokens", a
            Task such as ``Numbers(tolerance=0.5)``, or a class of your own as ``package.module:Class``.
        collate: Function that makes a batch, (inputs, targets) or a dict with ``labels``, of a list of samples, where
            these differ in length.

    Returns:
        The federation, to be passed to :func:`train`, :func:`unlearn` and :func:`audit`.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be an nn.Module, not a {type(model).__name__}")
    if not isinstance(clients, Mapping):
        raise UserError(
            f"clients must be a mapping from client id to (train set, test set), not a {type(clients).__name__}"
        )
    splits = {str(i): splits_of(str(i), both, collate) for i, both in clients.items()}
    return SimulatedFederation(model, splits, workers, fresh, device, task_of(task))


def train(
    federation: Federation,
    w0: Model,
    method: Method | str | None = None,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    record: Sequence[str] = (),
    keep: int = 100,
    measure_every: int = 1,
    watch: Watch | None = None,
) -> Result:
    """Train a federated model with all clients.

    Args:
        federation: The clients, as :func:`simulate` returns them.
        w0: Model to start from: an nn.Module, its state dict, a flat tensor, the path of a .safetensors file, the
            directory of a finished run, or a Result.
        method: Training method, as an object or by name; by default ``FedAvg()``.
        seed: Seed of all random choices.
        out: Run directory to write; by default the run is kept in memory.
        resume: Continue the run in ``out``.
        record: Unlearning methods (federaser, fupga, fedau, rewind, ridge) whose training history is recorded in the
            run directory.
        keep: Number of rounds whose local models are recorded for FedEraser.
        measure_every: Rounds between measurements of the model; 0 measures only the last one.
        watch: Function that is called with the record of every round.

    Returns:
        The result; ``result.model()`` is the trained model.
    """
    start = began(federation, w0)
    method, label = chosen(method, FedAvg, start.training)
    if start.earlier is not None and start.earlier.divides:  # nobody trains on samples that were forgotten
        federation = federation.divided(Request().after(start.earlier))
    settings = _settings(federation, method, label, start, seed, out)
    settings = dataclasses.replace(settings, resume=resume, measure_every=measure_every, progress=_watched(watch))
    return learn(federation, start, method, settings, record=record, keep=keep)


def unlearn(
    federation: Federation,
    w0: Model,
    forget: Forget,
    method: Method | str | None = None,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    attack: bool = False,
    measure_every: int = 1,
    watch: Watch | None = None,
) -> Result:
    """Make a model forget data, and keep it useful for the retained clients.

    Args:
        federation: All clients, the forget clients included.
        w0: Model that is to forget: an nn.Module, its state dict, a flat tensor, the path of a .safetensors file, the
            directory of a finished run, or a Result. With a run or a Result, clients that it has forgotten are left
            out, and the recorded history of its training is available to the method.
        forget: Ids of the clients to forget, or a Request: ``Request(samples={"a": (0, 17)})``,
            ``Request(classes=(4,))``.
        method: Unlearning method, as an object or by name, such as "fedosd" or "fupareto:paper"; by default
            ``FUPareto()``. A method given by name takes settings such as the batch size from the training of ``w0``,
            where that is known.
        seed: Seed of all random choices.
        out: Run directory to write; by default the run is kept in memory.
        resume: Continue the run in ``out``.
        attack: Audit the models as part of the run, as :meth:`Result.audit` does afterwards.
        measure_every: Rounds between measurements of the model; 0 measures only the last model of a stage.
        watch: Function that is called with the record of every round.

    Returns:
        The result; ``result.model()`` is the model to use from now on.
    """
    request = _request(forget)
    start = began(federation, w0)
    method, label = chosen(method, FUPareto, start.training)
    request = request if start.earlier is None else request.after(start.earlier)
    federation = federation.divided(request)
    settings = _settings(federation, method, label, start, seed, out)
    settings = dataclasses.replace(settings, resume=resume, measure_every=measure_every, progress=_watched(watch))
    return answer(federation, start, request, method, settings, attack=attack)


def audit(
    federation: Federation,
    run: str | Path | Result,
    *,
    retrain: int = 0,
    training: FedAvg | None = None,
    reference: References | None = None,
    thresholds: Thresholds | Mapping[str, float] | None = None,
    dormancy: int | None = None,
) -> dict[str, Any]:
    """Audit a finished run and write its audit.json and summary.json.

    Args:
        federation: The clients that the run was made with.
        run: The run directory, or a Result.
        retrain: As in :meth:`Result.audit`, where all further arguments are explained.
        training: As in :meth:`Result.audit`.
        reference: As in :meth:`Result.audit`.
        thresholds: As in :meth:`Result.audit`.
        dormancy: As in :meth:`Result.audit`.

    Returns:
        The audit (the content of audit.json).
    """
    result = run if isinstance(run, Result) else Result.load(federation, run)
    return result.audit(retrain, training, reference, thresholds, dormancy)


def learn(
    federation: Federation,
    start: Start,
    method: Method,
    settings: Settings,
    *,
    record: Sequence[str] = (),
    keep: int = 100,
    about: Request | None = None,
) -> Result:
    """Train a model from a prepared start.

    Args:
        federation: The clients.
        start: Model to start from.
        method: Training method.
        settings: Seed, run directory and other settings of the run.
        record: Unlearning methods whose training history is recorded.
        keep: Number of rounds whose local models are recorded for FedEraser.
        about: Later request against which the model is already measured.

    Returns:
        The result.
    """
    if unknown := [part for part in record if part not in PARTS]:
        hint = did_you_mean(unknown[0], PARTS)
        raise UserError(f"record: {', '.join(unknown)} is unknown; record takes {', '.join(PARTS)}{hint}")
    if record and settings.out is None:
        raise UserError("record needs a run directory to write the history to; name one with out=")
    if forgotten := [i for i in start.left if i in federation.ids]:
        raise UserError(
            f"the model has forgotten {', '.join(forgotten)}, and training with these clients would undo that; train a "
            "federation without them"
        )
    heads = (about.clients if about else federation.ids) if "fedau" in record else ()
    plan = Plan(tuple(dict.fromkeys(record)), federation.ids, method.budget, keep, heads, settings.seed, start.of_run)
    settings = _with_task(settings, federation)
    with execute.held(settings):
        outcome = execute.train(federation, start, method, settings, about=about, plan=plan)
        return _ended(Result(outcome, None, settings.seed, settings.facts), settings)


def answer(
    federation: Federation,
    start: Start,
    request: Request,
    method: Method,
    settings: Settings,
    *,
    attack: bool = False,
) -> Result:
    """Answer a request from a prepared start.

    Args:
        federation: The clients, already divided for the request.
        start: Model that is to forget.
        request: What must be forgotten.
        method: Unlearning method.
        settings: Seed, run directory and other settings of the run.
        attack: Audit the models as part of the run.

    Returns:
        The result.
    """
    federation = calibrated(federation, start.w)
    settings = _with_task(settings, federation)
    with execute.held(settings):
        outcome = execute.answer(federation, start, request, method, settings)
        result = Result(outcome, request, settings.seed, settings.facts)
        if attack and not outcome.place.finished:
            result.audit()
        return _ended(result, settings)


def _ended(result: Result, settings: Settings) -> Result:
    """Write the summary of a run in a directory, which marks the run as finished."""
    if settings.out is not None:
        result.summary()
    return result


def _settings(
    federation: Federation, method: Method, label: str, start: Start, seed: int, out: str | Path | None
) -> Settings:
    """Return the settings of a run from Python, with the contents of config.toml and the facts of the summary."""
    place = None if out is None else Path(out)
    known = versions(federation.packages)
    config = {
        "kind": "python",
        "method": {"name": label, **dataclasses.asdict(method)},
        "seed": seed,
        "training": dataclasses.asdict(start.training) if start.training else None,
        "ridge": {"ridge": start.ridge.ridge} if start.ridge else None,
        "trained": origin(start.source, place),
        "versions": known,
    }
    facts = {"name": place.name if place else "", "method": label, "dataset": "yours", "model": "yours"}
    return Settings(
        seed, place, config=config, facts={**facts, "seed": seed, "versions": known, **federation.provenance}
    )


def calibrated(federation: Federation, w: Tensor) -> Federation:
    """Return the federation with a task whose open options, such as a tolerance, follow from a model's errors."""
    task = federation.task
    if not task.open:
        return federation
    seen = federation.evaluate(w, federation.ids, ("test|train",))
    return federation.judged(task.calibrate([counts for splits in seen.counts.values() for counts in splits.values()]))


def _with_task(settings: Settings, federation: Federation) -> Settings:
    """Return the settings with what a run must know to be repeated: its task, and a hash of frozen parameters."""
    spec, base = federation.task.spec(), federation.layout.base()
    known = {**({} if spec == {"name": "classes"} else {"task": spec}), **({"base": base} if base else {})}
    if not known:
        return settings
    return dataclasses.replace(settings, config={**settings.config, **known}, facts={**settings.facts, **known})


def _request(forget: Any) -> Request:
    """Return the request that ``forget`` stands for: a Request, or client ids."""
    if isinstance(forget, Request):
        return forget
    if isinstance(forget, str):
        raise UserError(f"forget must be a list of client ids, not a string: forget=[{forget!r}]")
    if isinstance(forget, Mapping | Tensor) or not hasattr(forget, "__iter__"):
        raise UserError(f"forget must be a list of client ids or a Request, not a {type(forget).__name__}")
    return Request(tuple(dict.fromkeys(map(str, forget))))


def _watched(watch: Watch | None) -> Progress:
    """Return a progress display that passes every record to ``watch``."""
    return lambda title, rounds: nullcontext(watch)
