"""What does a program call? Bring a model and clients; train, forget, audit, report."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fupareto import parameters, runner
from fupareto.federation import Federation, Request, SimulatedFederation
from fupareto.methods import FedAvg, FUPareto, Method
from fupareto.report import render
from fupareto.runner import Outcome, Watch
from fupareto.runs import Memory, Run

Samples = Any  # (inputs, labels) as tensors or arrays, or a torch Dataset of (input, label) pairs


def simulate(
    model: nn.Module, clients: Mapping[str, tuple[Samples, Samples]], workers: int | None = None
) -> SimulatedFederation:
    """Return a federation in this process; ``clients`` maps an id to its train and test set."""
    splits = {str(i): {"train": _tensors(train), "test": _tensors(test)} for i, (train, test) in clients.items()}
    return SimulatedFederation(model, splits, workers)


@dataclasses.dataclass
class Result:
    """A finished run: its models by stage, its rounds, its audit and its report."""

    outcome: Outcome
    method: Method
    seed: int

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Return one record per round."""
        return self.outcome.place.rounds()

    def model(self, stage: str | None = None) -> dict[str, Tensor]:
        """Return the weights of a stage as a state dict has them, by default of the model to keep."""
        tensors = self.outcome.place.load_model(stage or self.audit()["final"])
        if tensors is None:
            raise KeyError(f"the run has no {stage} model")
        return tensors

    def audit(self) -> dict[str, Any]:
        """Measure the models and return the summary (the keys of ``summary.json``)."""
        facts = {"name": "", "method": self.method.name, "dataset": "yours", "model": "yours", "seed": self.seed}
        summary = runner.summarise(self.outcome, facts)
        if isinstance(self.outcome.place, Run):
            self.outcome.place.save_summary(summary)
        return summary

    def report(self, path: str | Path) -> Path:
        """Write the HTML report."""
        config = {"method": {"name": self.method.name, **dataclasses.asdict(self.method)}, "seed": self.seed}
        Path(path).write_text(render(self.audit(), self.rounds, config))
        return Path(path)


def train(
    federation: Federation,
    w0: Tensor | nn.Module,
    method: Method | None = None,
    *,
    seed: int = 0,
    watch: Watch | None = None,
) -> Result:
    """Train a model with everybody, by FedAvg unless another method is given."""
    method = method or FedAvg()
    return Result(runner.run(method, federation, _vector(w0), None, seed=seed, watch=watch), method, seed)


def unlearn(
    federation: Federation,
    w0: Tensor | nn.Module,
    forget: Sequence[str],
    method: Method | None = None,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> Result:
    """Forget the clients ``forget``, starting from ``w0``; with ``out``, into a run directory that can be resumed."""
    method = method or FUPareto()
    request = Request(tuple(dict.fromkeys(map(str, forget))))
    request.sides(federation.ids)
    place: Run | Memory = Memory()
    if out is not None:
        config = {"kind": "python", "method": {"name": method.name, **dataclasses.asdict(method)}, "seed": seed}
        place = Run.make(Path(out), config, {"clients": list(request.clients)}, resume)
    outcome = runner.run(method, federation, _vector(w0), request, seed=seed, place=place, watch=watch)
    return Result(outcome, method, seed)


def _vector(w0: Tensor | nn.Module) -> Tensor:
    return parameters.read(w0) if isinstance(w0, nn.Module) else w0.detach().float()


def _tensors(samples: Samples) -> tuple[Tensor, Tensor]:
    if isinstance(samples, tuple | list) and len(samples) == 2 and hasattr(samples[0], "shape"):
        return torch.as_tensor(samples[0]), torch.as_tensor(samples[1])
    pairs = [samples[k] for k in range(len(samples))]
    inputs = torch.stack([torch.as_tensor(x) for x, _ in pairs]) if pairs else torch.empty(0)
    return inputs, torch.tensor([int(y) for _, y in pairs])
