"""Answer to a request against the model of a run that was made from an experiment file."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fupareto import api, trust
from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.experiment.duration import check as check_duration
from fupareto.experiment.host import SILENT, Host
from fupareto.experiment.setting import (
    default_request,
    facts,
    federation,
    forgetter,
    marked_clients,
    reachable,
    stored_experiment,
    stored_method,
)
from fupareto.federation import Request
from fupareto.methods.sequential import Sequential
from fupareto.result import Model, began
from fupareto.run.directory import Run
from fupareto.run.execute import Settings
from fupareto.run.start import origin
from fupareto.versions import versions


def unlearn(
    trained: Path,
    out: Path,
    *,
    request: Request | None = None,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    group: int = 0,
    sequential: bool = False,
    measure_every: int = 1,
    resume: bool = False,
    attack: bool = True,
    gone: Sequence[str] = (),
    host: Host = SILENT,
) -> Run:
    """Answer a request against the final model of a finished run.

    After a training run that is its model; after another request it is the model that was kept, and those who were
    forgotten take part no more. What is not said is taken from the experiment file; options given here are added to
    the file's when the method, whatever its preset, is the file's. With ``sequential`` the clients are forgotten one
    after the other. ``group`` is the least number of samples of a client that are forgotten together; what a server
    could infer from fewer is said to the user. ``attack`` audits the models before the run counts as finished. ``gone``
    are clients that can no longer be reached: nobody asks them, and what concerns them is unverified.
    """
    trust.name(method)
    parent = Run.open(trained)
    experiment = stored_experiment(parent, f'fupareto.unlearn(federation, "{trained}", forget=[...], out="{out}")')
    if not parent.finished:
        raise UserError(f"{trained} is not finished; continue it with --resume first")
    asked = _next(parent, experiment, request)
    if group and asked.samples:
        asked = asked.grouped(federation(experiment, root=host.root)[0].clients, group, experiment.seed)
    elif group:
        raise UserError("--group is for requests for samples; a request for clients or classes is not made larger")
    for remark in filter(None, (asked.exposed(), _unmarked(experiment, asked))):
        host.say(remark)
    return answer(
        experiment,
        parent,
        out,
        request=asked,
        chosen=method or stored_method(parent, experiment.unlearn.method),
        options=options or {},
        sequential=sequential,
        measure_every=measure_every,
        resume=resume,
        attack=attack,
        gone=gone,
        host=host,
    )


def _next(parent: Run, experiment: Experiment, request: Request | None) -> Request:
    """Return the request, together with the clients that earlier requests have forgotten."""
    if parent.trains:
        return request or default_request(experiment)
    if request is None:
        raise UserError(f"{parent.path} has already answered a request; name the clients to forget next with --clients")
    return request.after(Request.from_json(parent.request))


def _unmarked(experiment: Experiment, request: Request) -> str:
    """Return a remark on forget clients without the mark that the experiment plants; empty where there are none."""
    marked, known = marked_clients(experiment), range(experiment.partition.clients)
    without = [i for i in map(str, known) if i in request.clients and i not in marked]
    if not marked or not without:
        return ""
    return (
        f"Forgetting is measured without a mark for client {', '.join(without)}: the experiment plants its mark in "
        f"client {', '.join(marked)}."
    )


def answer(
    experiment: Experiment,
    w0: Model,
    out: Path,
    *,
    request: Request,
    chosen: str,
    options: Mapping[str, Any],
    sequential: bool = False,
    measure_every: int = 1,
    resume: bool = False,
    seed: int | None = None,
    attack: bool = True,
    gone: Sequence[str] = (),
    host: Host = SILENT,
) -> Run:
    """Run a method from the model ``w0`` to its end, measure and audit; ``seed`` is the experiment's unless given."""
    asked = forgetter(experiment, chosen, options)
    method = Sequential(asked, len(request.clients)) if sequential else asked
    if not request.partial:
        request.sides([str(i) for i in range(experiment.partition.clients)])
    simulated, _ = federation(experiment, request, host.root, device=host.device)
    engine = reachable(simulated, gone)
    start = began(engine, w0)
    check_duration(method, simulated, start.w, host.agree)
    config = {
        "kind": "unlearn",
        "experiment": experiment.model_dump(),
        "method": {"name": chosen, **dataclasses.asdict(method)},
        "trained": origin(start.source, out),
        "versions": versions(),
        **({"gone": list(gone)} if gone else {}),
        **({} if seed is None else {"seed": seed}),
    }
    settings = Settings(
        experiment.seed if seed is None else seed,
        out,
        resume,
        measure_every,
        host.progress,
        config=config,
        facts=facts(experiment, f"{chosen}, one by one" if sequential else chosen),
    )
    api.answer(engine, start, request, method, settings, attack=attack)
    return Run.open(out)
