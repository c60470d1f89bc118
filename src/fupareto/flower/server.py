"""Flower server: a ServerApp that trains a model or answers a request, depending on the run config."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from fupareto import api, evidence, parse, verification
from fupareto.audit.checks import CLOSING
from fupareto.errors import UserError
from fupareto.flower.engine import FlowerFederation
from fupareto.flower.membership import Membership
from fupareto.flower.order import Order
from fupareto.methods import Method
from fupareto.methods.renew import Renew
from fupareto.parameters import Layout
from fupareto.progress import in_words
from fupareto.run.directory import Run
from fupareto.run.start import Start, start_from
from fupareto.tasks import Task
from fupareto.tracking import Tracking

log = logging.getLogger("flwr")
Model = Callable[[], nn.Module]
Fresh = Callable[[int], nn.Module]  # a newly initialised model for a seed
TaskLike = Task | type[Task] | str | Mapping[str, Any] | None


def server_app(model: Model, fresh: Fresh | None = None, task: TaskLike = None) -> ServerApp:
    """Return a ServerApp that trains a model or answers a request, depending on the run config.

    Args:
        model: Function that returns the model, an nn.Module.
        fresh: Function of a seed that returns a newly initialised model, for methods that need one, such as retrain; by
            default the layers of the model are reset.
        task: What samples, outputs and losses are, as in :func:`fupareto.simulate`; None leaves it to the nodes.

    Returns:
        The app.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, context.run_config, model, fresh, task)
        except UserError as error:
            log.error("fupareto: %s", error)
            raise  # marks the run as failed, with this message; after sys.exit Flower waits a minute for a heartbeat

    return app


def serve(
    grid: Grid, run_config: Mapping[str, Any], model: Model, fresh: Fresh | None = None, task: TaskLike = None
) -> Run:
    """Carry out a run config with the clients of a grid.

    Args:
        grid: The grid.
        run_config: Run config, see :class:`Order`.
        model: Function that returns the model.
        fresh: Function of a seed that returns a newly initialised model.
        task: What samples, outputs and losses are.

    Returns:
        The finished run.
    """
    order, module, out = Order.read(run_config), model(), Path(run_config.get("out", Order.model_fields["out"].default))
    tracking = Tracking(parse.listed(order.log), out)
    if not (order.resume and Run.begun(out)):
        Run.check_free(out)
    start = start_from(Layout.of(module), order.model or module, "model")
    federation = FlowerFederation(
        grid,
        module,
        clients=order.clients,
        timeout=order.timeout,
        patience=order.patience,
        members=Membership.read(Path(order.members)) if order.members else None,
        wait_for=order.wait_for,
        essential=order.essential,
        fresh=fresh,
        task=task,
    )
    if not order.members:
        log.warning("fupareto: no membership file: every node says itself which client it is (docs/security.md)")
    log.info("fupareto: %d clients are connected: %s", len(federation.ids), ", ".join(federation.ids))
    with tracking:
        result = (_train if order.trains else _unlearn)(order, federation, start, _how(order, start, out, tracking))
    result.report(out / "report.html")
    if order.certify and not order.trains:
        _certify(order, result, out)
    run = Run.open(out)
    _tell(run)
    return run


def _train(order: Order, federation: FlowerFederation, start: Start, how: dict[str, Any]) -> api.Result:
    record = parse.listed(order.record)
    return api.train(federation, start, order.chosen(), record=record, keep=order.keep, **how)


def _unlearn(order: Order, federation: FlowerFederation, start: Start, how: dict[str, Any]) -> api.Result:
    assert order.request is not None  # the order was read
    more = bool(order.reference or order.retrain or order.dormancy is not None)
    at_once = order.audit and not more
    method = order.chosen(start.training)
    _warn_of_unknown_training(method)
    result = api.unlearn(federation, start, order.request, method, attack=at_once, **how)
    if order.audit and more:
        log.info("fupareto: auditing the models")
        references = [str(path) for path in parse.listed(order.reference)]
        result.audit(retrain=order.retrain, reference=references or None, dormancy=order.dormancy)
    return result


def _warn_of_unknown_training(method: Method) -> None:
    """Say what renewal does where nothing is known of the training of the model."""
    renew = method if isinstance(method, Renew) else getattr(method, "renew", None)
    if isinstance(renew, Renew) and renew.training is None:
        assumed = renew.trained
        log.warning(
            "fupareto: how the model was trained is not known, so renewal takes %d rounds with lr=%g and "
            "batch_size=%d, the defaults of FedAvg; set model to the training run, or give its settings: "
            'options="training.rounds=40 training.lr=0.1 training.batch_size=32"',
            renew.planned,
            assumed.lr,
            assumed.batch_size,
        )


def _certify(order: Order, result: api.Result, out: Path) -> None:
    """Certify the run, and ask the forget clients to sign what they measure on their own data."""
    signer = evidence.signer(Path(order.key)) if order.key else None
    path = evidence.certify(out, previous=Path(order.previous) if order.previous else None, signer=signer)
    log.info("fupareto: certificate %s", path)
    for client, text in verification.receipts(result).items():
        log.info("fupareto: receipt of client %s: %s", client, text)


def _how(order: Order, start: Start, out: Path, tracking: Tracking) -> dict[str, Any]:
    """Return the arguments that training and unlearning share."""
    expected = order.chosen(start.training).expected

    def watch(entry: dict[str, Any]) -> None:
        missing = "".join(f"; {i} is missing: {why}" for i, why in (entry.get("missing") or {}).items())
        words = in_words(entry) or entry["phase"]
        log.info("fupareto: round %d of %d, %s%s", entry["round"], max(expected, entry["round"]), words, missing)
        tracking(entry)

    return {
        "seed": order.seed,
        "out": out,
        "resume": order.resume,
        "measure_every": order.measure_every,
        "watch": watch,
    }


def _tell(run: Run) -> None:
    """Log the verdict, the checks and the paths of the results."""
    if verdict := run.summary["verdict"]:
        log.info("fupareto: %s", verdict)
    if audit := run.audit:
        for check in audit["verdict"]["checks"]:
            log.info("fupareto: %s %s: %s", check["result"], check["claim"], check["text"])
        log.info("fupareto: %s", CLOSING)
    log.info("fupareto: summary %s, report %s", run.path / "summary.json", run.path / "report.html")
