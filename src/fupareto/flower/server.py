"""How does a Flower server answer a request? An ordinary ServerApp around the loop, the run directory and the audit."""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import Tensor, nn

from fupareto import api, parameters, parse
from fupareto.audit.checks import CLOSING
from fupareto.errors import UserError
from fupareto.federation import Federation, Local
from fupareto.federation.history import History
from fupareto.federation.recording import WithHistory
from fupareto.flower.engine import FlowerFederation
from fupareto.flower.order import Order
from fupareto.parameters import Layout
from fupareto.progress import in_words
from fupareto.report import render
from fupareto.run.directory import Run

log = logging.getLogger("flwr")
Model = Callable[[], nn.Module]
Fresh = Callable[[int], nn.Module]  # a new model, of a seed


def server_app(model: Model, fresh: Fresh | None = None) -> ServerApp:
    """Return a ServerApp that trains or unlearns, as the run config says; ``fresh`` makes new models of a seed."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, context.run_config, model, fresh)
        except UserError as error:
            log.error("fupareto: %s", error)
            raise  # the run ends as failed, with these words; after sys.exit Flower would wait a minute for a heartbeat

    return app


def serve(grid: Grid, run_config: Mapping[str, Any], model: Model, fresh: Fresh | None = None) -> Run:
    """Do what the run config asks for, with the clients of the grid, into a run directory."""
    order, module, out = Order.read(run_config), model(), Path(run_config.get("out", Order.model_fields["out"].default))
    if not (order.resume and Run.begun(out)):
        Run.check_free(out)
    begin = _begin(order, module)
    federation = FlowerFederation(
        grid, module, clients=order.clients, timeout=order.timeout, patience=order.patience, fresh=fresh
    )
    log.info("fupareto: %d clients are there: %s", len(federation.ids), ", ".join(federation.ids))
    run = _train(order, federation, begin, out) if order.trains else _unlearn(order, federation, begin, out)
    _tell(run)
    return run


@dataclasses.dataclass(frozen=True)
class Begin:
    """Where a run starts: the model, who has left before, and what was kept of the training."""

    w: Tensor
    left: tuple[str, ...] = ()
    history: History | None = None


def _begin(order: Order, module: nn.Module) -> Begin:
    """Find the model to start from; training may start from a new one."""
    if not order.model:
        return Begin(parameters.read(module))
    path, layout = Path(order.model), Layout.of(module)
    if path.is_dir():
        run = Run.open(path)
        stage = run.summary["final"]
        weights = run.load_model(stage)
        if weights is None:
            raise UserError(f"{path} has lost its model {stage}.safetensors")
        earlier = run.request if run.summary["forget"] else {}
        left = (*earlier.get("left", ()), *earlier.get("clients", ()))
        return Begin(layout.flat(weights), left, History.open(path / "history"))
    try:
        return Begin(layout.flat(safetensors.torch.load_file(path)))
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"cannot read the model {path}, which must be a .safetensors file: {error}") from error


def _train(order: Order, federation: FlowerFederation, begin: Begin, out: Path) -> Run:
    parts = parse.listed(order.record)
    result = api.train(federation, begin.w, order.method_, record=parts, keep=order.keep, **_how(order, out))
    result.audit()
    return _finished(result)


def _unlearn(order: Order, federation: FlowerFederation, begin: Begin, out: Path) -> Run:
    asked = WithHistory(federation, begin.history) if begin.history else federation
    assert order.request is not None  # the order was read
    request = dataclasses.replace(order.request, left=begin.left)
    result = api.unlearn(asked, begin.w, request, order.method_, **_how(order, out))
    log.info("fupareto: measuring the models%s", " and attacking them" if order.audit else "")
    if order.audit:
        result.evidence(*_reference(order, federation))
    else:
        result.audit()
    return _finished(result)


def _how(order: Order, out: Path) -> dict[str, Any]:
    budget = order.method_.budget

    def watch(entry: dict[str, Any]) -> None:
        missing = "".join(f"; {i} is missing: {why}" for i, why in (entry.get("missing") or {}).items())
        words = in_words(entry) or entry["phase"]
        log.info("fupareto: round %d of %d, %s%s", entry["round"], budget, words, missing)

    return {
        "seed": order.seed,
        "out": out,
        "resume": order.resume,
        "measure_every": order.measure_every,
        "watch": watch,
    }


def _reference(order: Order, federation: Federation) -> tuple[Tensor | None, Local | None]:
    """Return a retrained model and how it was trained, for the comparison with the truth and for relearning."""
    if not order.reference:
        return None, None
    run = Run.open(Path(order.reference))
    weights, method = run.load_model(run.summary["final"]), run.config["method"]
    if weights is None or method["name"] != "retrain":
        raise UserError(f'reference names {order.reference}, which is not a finished run of method "retrain"')
    training = Local(method["lr"], method["epochs"], method["batch_size"], order.seed)
    return federation.layout.flat(weights), training


def _finished(result: api.Result) -> Run:
    place = result.outcome.place
    assert isinstance(place, Run)
    place.save_report(render(place.summary, place.rounds(), place.config, place.audit))
    return place


def _tell(run: Run) -> None:
    if verdict := run.summary["verdict"]:
        log.info("fupareto: %s", verdict)
    if audit := run.audit:
        for check in audit["verdict"]["checks"]:
            log.info("fupareto: %s %s: %s", check["result"], check["claim"], check["text"])
        log.info("fupareto: %s", CLOSING)
    log.info("fupareto: summary %s, report %s", run.path / "summary.json", run.path / "report.html")
