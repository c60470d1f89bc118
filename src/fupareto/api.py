"""What programs call: train a federated model, make it forget, audit it.

Everything that runs a method comes through here. ``experiment`` and ``flower`` build the inputs of :func:`learn` and
:func:`answer`, for which :func:`train` and :func:`unlearn` are the doors from Python.
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
from fupareto.federation.samples import Samples, splits_of
from fupareto.methods import FedAvg, FUPareto, Method
from fupareto.methods.registry import chosen
from fupareto.result import Model, References, Result, began
from fupareto.run import execute
from fupareto.run.execute import Progress, Settings
from fupareto.run.loop import Watch
from fupareto.run.start import Start
from fupareto.versions import versions

__all__ = ["Result", "answer", "audit", "learn", "simulate", "train", "unlearn"]

Forget = Sequence[str] | Request


def simulate(
    model: nn.Module,
    clients: Mapping[str, tuple[Samples, Samples]],
    workers: int | None = None,
    fresh: Callable[[int], nn.Module] | None = None,
    device: str | torch.device = "cpu",
) -> SimulatedFederation:
    """Return a federation in this process.

    Args:
        model: The model that clients train; only its architecture and what is frozen in it matter.
        clients: For every id its train and its test set.
        workers: Clients that compute at once; by default one per core.
        fresh: A function of a seed that returns a new model, for methods that start anew; by default the layers of
            ``model`` are reset.
        device: Where data and models are, such as "cuda".
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be an nn.Module, not a {type(model).__name__}")
    if not isinstance(clients, Mapping):
        raise UserError(f"clients must map an id to a train and a test set, not be a {type(clients).__name__}")
    held = {str(i): splits_of(i, both) for i, both in clients.items()}
    return SimulatedFederation(model, held, workers, fresh, device)


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
    """Train a model with everybody.

    Args:
        federation: Who trains.
        w0: The model to start from: an nn.Module, its state dict, a flat tensor, the path of a .safetensors file, the
            directory of a finished run, or a Result.
        method: FedAvg with its defaults unless another is given.
        seed: Everything random comes from it.
        out: A run directory to write; without it the run is kept in memory.
        resume: Continue the run that ``out`` holds.
        record: Methods (federaser, fupga, fedau) that will find what they need in the run's ``history``.
        keep: Rounds of which FedEraser will find the local models.
        measure_every: Rounds from one measurement of the model to the next; 0 measures the last one.
        watch: Called with every round's record.
    """
    start = began(federation, w0)
    method, label = chosen(method, FedAvg, start.training)
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
    """Make a model forget, and keep it useful for the retained clients.

    Args:
        federation: All clients, those to be forgotten among them.
        w0: The model that is to forget: an nn.Module, its state dict, a flat tensor, the path of a .safetensors file,
            the directory of a finished run, or a Result. After a run, who was forgotten before takes part no more, and
            the history of its training is at hand.
        forget: The clients to forget, or a Request: ``Request(samples={"a": (0, 17)})``, ``Request(classes=(4,))``.
        method: FUPareto with its defaults unless another is given; also by name, such as "fedosd" or "fupareto:paper".
        seed: Everything random comes from it.
        out: A run directory to write; without it the run is kept in memory.
        resume: Continue the run that ``out`` holds.
        attack: Audit the models before the run counts as finished, as :meth:`Result.audit` does later.
        measure_every: Rounds from one measurement of the model to the next; 0 measures the last one of a stage.
        watch: Called with every round's record.
    """
    request = _request(forget)
    start = began(federation, w0)
    method, label = chosen(method, FUPareto, start.training)
    request = dataclasses.replace(request, left=tuple(dict.fromkeys((*start.left, *request.left))))
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
    """Audit a finished run with the federation at hand, write audit.json and summary.json, and return the audit.

    Args:
        federation: The clients that the run was made with.
        run: The run directory.
        retrain: Compare with a model that is retrained without the forgotten data, into ``retrained`` in the run; 2
            makes another one from another seed, into ``retrained-2``.
        training: How to retrain, where the run does not say how its first model was trained.
        reference: A retrained model to compare with, in any form that ``w0`` may have, or a list of two.
        thresholds: Where a number is good enough.
        dormancy: Rounds for which the retained clients train the model on, to see what comes back; 0 for none. By
            default 40, if the run had as many and how clients train is known.
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
    """Train a model as ``settings`` say; it is measured against ``about``, a request to come."""
    if unknown := [part for part in record if part not in PARTS]:
        hint = did_you_mean(unknown[0], PARTS)
        raise UserError(f"no method {', '.join(unknown)} needs a history; those that do are {', '.join(PARTS)}{hint}")
    if record and settings.out is None:
        raise UserError("a history is kept in a run directory; name one with out")
    if again := [i for i in start.left if i in federation.ids]:
        raise UserError(
            f"the model has forgotten {', '.join(again)}, and training would teach it their data again; train a "
            "federation without them"
        )
    heads = (about.clients if about else federation.ids) if "fedau" in record else ()
    plan = Plan(tuple(dict.fromkeys(record)), federation.ids, method.budget, keep, heads, settings.seed)
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
    """Answer a request as ``settings`` say, in a federation that is divided for it already."""
    outcome = execute.answer(federation, start, request, method, settings)
    result = Result(outcome, request, settings.seed, settings.facts)
    if attack and not outcome.place.finished:
        result.audit()
    return _ended(result, settings)


def _ended(result: Result, settings: Settings) -> Result:
    """Measure a run that is kept in a directory: its summary says that it is finished."""
    if settings.out is not None:
        result.summary()
    return result


def _settings(
    federation: Federation, method: Method, label: str, start: Start, seed: int, out: str | Path | None
) -> Settings:
    """Return what a run from Python says of itself."""
    place = None if out is None else Path(out)
    known = versions(federation.packages)
    config = {
        "kind": "python",
        "method": {"name": label, **dataclasses.asdict(method)},
        "seed": seed,
        "training": dataclasses.asdict(start.training) if start.training else None,
        "trained": str(start.source) if start.source else None,
        "versions": known,
    }
    facts = {"name": place.name if place else "", "method": label, "dataset": "yours", "model": "yours"}
    return Settings(seed, place, config=config, facts={**facts, "seed": seed, "versions": known})


def _request(forget: Any) -> Request:
    if isinstance(forget, Request):
        return forget
    if isinstance(forget, str):
        raise UserError(f"forget takes a list of clients: forget=[{forget!r}]")
    if isinstance(forget, Mapping | Tensor) or not hasattr(forget, "__iter__"):
        raise UserError(f"forget takes a list of clients or a Request, not a {type(forget).__name__}")
    return Request(tuple(dict.fromkeys(map(str, forget))))


def _watched(watch: Watch | None) -> Progress:
    return lambda title, rounds: nullcontext(watch)
