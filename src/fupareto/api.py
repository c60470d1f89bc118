"""What does a program call? Bring a model and clients; train, forget, audit, report."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fupareto import parameters
from fupareto.audit import assemble
from fupareto.audit.assemble import Truth
from fupareto.audit.checks import Thresholds
from fupareto.errors import UserError
from fupareto.federation import Federation, Request, SimulatedFederation
from fupareto.federation.collected import Local
from fupareto.federation.history import PARTS, Plan
from fupareto.federation.recording import record as recorded
from fupareto.federation.samples import Samples, splits_of
from fupareto.methods import FedAvg, FUPareto, Method
from fupareto.report import render
from fupareto.run import budget, loop
from fupareto.run.directory import Memory, Run
from fupareto.run.loop import Outcome, Watch
from fupareto.versions import versions


def simulate(
    model: nn.Module,
    clients: Mapping[str, tuple[Samples, Samples]],
    workers: int | None = None,
    fresh: Callable[[int], nn.Module] | None = None,
    device: str | torch.device = "cpu",
) -> SimulatedFederation:
    """Return a federation in this process; ``clients`` maps an id to its train and test set.

    Some methods start from new models. They are made by resetting the layers of ``model``, or by ``fresh``, a function
    of a seed. With a ``device`` such as "cuda", data and models are moved there.
    """
    held = {str(i): splits_of(i, both) for i, both in clients.items()}
    return SimulatedFederation(model, held, workers, fresh, device)


@dataclasses.dataclass
class Result:
    """A finished run: its models by stage, its rounds, its audit and its report."""

    outcome: Outcome
    method: Method
    seed: int
    _summary: dict[str, Any] | None = None

    @property
    def _versions(self) -> dict[str, str]:
        return versions(self.outcome.federation.packages)

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Return one record per round."""
        return self.outcome.place.rounds()

    def model(self, stage: str | None = None) -> dict[str, Tensor]:
        """Return the weights of a stage as a state dict has them, by default of the model to keep."""
        tensors = self.outcome.place.load_model(stage or self.audit()["final"])
        if tensors is None:
            raise UserError(f"the run has no {stage} model")
        return tensors

    def audit(self) -> dict[str, Any]:
        """Measure the models, once, and return the summary (the keys of ``summary.json``)."""
        if self._summary is None:
            name = self.outcome.place.path.name if isinstance(self.outcome.place, Run) else ""
            facts = {"name": name, "method": self.method.name, "dataset": "yours", "model": "yours", "seed": self.seed}
            created = datetime.now(UTC).isoformat(timespec="seconds")
            self._summary = loop.summarise(self.outcome, {**facts, "versions": self._versions, "created": created})
            if isinstance(self.outcome.place, Run):
                self.outcome.place.save_summary(self._summary)
        return self._summary

    def evidence(
        self,
        retrained: Tensor | nn.Module | None = None,
        training: Local | None = None,
        thresholds: Thresholds | None = None,
    ) -> dict[str, Any]:
        """Attack the models and return the audit (the keys of ``audit.json``), with its verdict.

        With a model that was ``retrained`` without the forgotten data it is compared with that; with the way in which
        clients train as well, it is seen how soon both learn them again.
        """
        if not self.outcome.sides[0]:
            raise UserError("nothing was forgotten, so there is nothing to show; audit the result of unlearn()")
        truth = None
        if retrained is not None:
            unknown = dict.fromkeys(("rounds", "seconds", "bytes_up", "bytes_down"))
            truth = Truth(_vector(self.outcome.federation, retrained), unknown)
        found = assemble.audit(
            self.outcome, self.audit(), seed=self.seed, retrained=truth, local=training, thresholds=thresholds
        )
        self._summary = assemble.with_membership(self.audit(), found)
        if isinstance(self.outcome.place, Run):
            self.outcome.place.save_audit(found)
            self.outcome.place.save_summary(self._summary)
        return found

    def report(self, path: str | Path, evidence: Mapping[str, Any] | None = None) -> Path:
        """Write the HTML report, with the ``evidence`` if it is given."""
        config = {"method": {"name": self.method.name, **dataclasses.asdict(self.method)}, "seed": self.seed}
        page = render(self.audit(), self.rounds, config, dict(evidence) if evidence else None)
        try:
            Path(path).write_text(page, encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
        return Path(path)


def train(
    federation: Federation,
    w0: Tensor | nn.Module,
    method: Method | None = None,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    record: Sequence[str] = (),
    keep: int = 100,
    measure_every: int = 1,
    watch: Watch | None = None,
) -> Result:
    """Train a model with everybody, by FedAvg unless another method is given; with ``out``, into a run directory.

    Methods named in ``record`` (federaser, fupga, fedau) will find what they need in its ``history``: FedEraser the
    local models of ``keep`` rounds, FedAU a second head of every client, for nobody knows yet who will leave.
    """
    method = method or FedAvg()
    w = _vector(federation, w0)
    if unknown := [part for part in record if part not in PARTS]:
        raise UserError(f"no method {', '.join(unknown)} needs a history; those that do are {', '.join(PARTS)}")
    if record and out is None:
        raise UserError("a history is kept in a run directory; name one with out")
    budget.check(method, federation, 0, len(federation.ids))
    place = _place(out, method, None, seed, resume, federation)
    if isinstance(place, Run):
        heads = federation.ids if "fedau" in record else ()
        plan = Plan(tuple(dict.fromkeys(record)), federation.ids, method.budget, keep, heads, seed)
        federation = recorded(federation, place.path / "history", plan)
    outcome = loop.run(method, federation, w, None, seed=seed, place=place, measure_every=measure_every, watch=watch)
    return Result(outcome, method, seed)


def unlearn(
    federation: Federation,
    w0: Tensor | nn.Module,
    forget: Sequence[str] | Request,
    method: Method | None = None,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    measure_every: int = 1,
    watch: Watch | None = None,
) -> Result:
    """Forget the clients ``forget``, starting from ``w0``; with ``out``, into a run directory that can be resumed.

    Samples and classes are forgotten by ``Request(samples={"a": (0, 17)})`` and ``Request(classes=(4,))``.
    """
    if isinstance(forget, str):
        raise UserError(f"forget takes a list of clients: forget=[{forget!r}]")
    method = method or FUPareto()
    w = _vector(federation, w0)
    request = forget if isinstance(forget, Request) else Request(tuple(dict.fromkeys(map(str, forget))))
    federation = federation.divided(request)
    budget.check(method, federation, *map(len, request.sides(federation.ids)))
    if out is not None:
        method.init(federation, w, request, seed)  # a request that it cannot answer should leave nothing behind
    place = _place(out, method, request, seed, resume, federation)
    begun = place.load_model("initial")
    if begun is not None and not torch.equal(federation.layout.flat(begun), w.cpu()):
        raise UserError(f"{out} began from another initial model; resume it with that one, or choose another out")
    outcome = loop.run(method, federation, w, request, seed=seed, place=place, measure_every=measure_every, watch=watch)
    return Result(outcome, method, seed)


def _place(
    out: str | Path | None, method: Method, request: Request | None, seed: int, resume: bool, federation: Federation
) -> Run | Memory:
    """Return where a run is kept: a directory, if one is named."""
    if out is None:
        return Memory()
    about = {"name": method.name, **dataclasses.asdict(method)}
    config = {"kind": "python", "method": about, "seed": seed, "versions": versions(federation.packages)}
    return Run.make(Path(out), config, request.to_json() if request else None, resume)


def _vector(federation: Federation, w0: Tensor | nn.Module) -> Tensor:
    w = (parameters.read(w0) if isinstance(w0, nn.Module) else w0.detach().float()).to(federation.device)
    size = federation.layout.size
    if tuple(w.shape) != (size,):
        raise UserError(f"the initial model has shape {tuple(w.shape)}, but the federation's model has {size} numbers")
    if not bool(torch.isfinite(w).all()):
        raise UserError("the initial model has numbers that are not finite; train it again, at a lower rate")
    return w
