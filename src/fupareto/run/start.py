"""Start of a run: the initial model, and what is known of its training."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from fupareto import documents, parameters
from fupareto.errors import UserError
from fupareto.federation.history import History
from fupareto.federation.request import Request
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.ridge import Ridge
from fupareto.parameters import Layout
from fupareto.run.directory import Run
from fupareto.run.in_memory import MemoryRun

Place = Run | MemoryRun
LASTING = ("federaser", "rewind", "ridge")  # parts of a history that serve a request after another one
ANCESTORS = 1000  # runs between a run and its training, at most
FORMS = (
    "an nn.Module, its state dict, a flat tensor, the path of a .safetensors file, the directory of a finished run, or "
    "a Result"
)


@dataclass(frozen=True)
class Start:
    """Initial model of a run, with its origin.

    Attributes:
        w: Vector of the model.
        earlier: What the model has already forgotten, as a request; None for nothing.
        history: Recorded history of its training, for methods that need it.
        training: Settings of its training; None where they are not known.
        ridge: The ridge regression that made it; None for any other training.
        source: Run directory that the model comes from; None where there is none.
        of_run: Whether the model comes from a run, in a directory or in memory, which may have seen any data.
    """

    w: Tensor
    earlier: Request | None = None
    history: History | None = None
    training: FedAvg | None = None
    ridge: Ridge | None = None
    source: Path | None = None
    of_run: bool = False

    @property
    def left(self) -> tuple[str, ...]:
        """Clients that the model has already forgotten as wholes; they no longer take part."""
        return () if self.earlier is None else (*self.earlier.left, *self.earlier.clients)


def start_from(layout: Layout, w0: Any, what: str = "w0") -> Start:
    """Return the start of a run from a model.

    Args:
        layout: Layout of the federation's model.
        w0: An nn.Module, its state dict, a flat tensor, the path of a .safetensors file, a run or the path of its
            directory, or a Start, which is returned as it is.
        what: Name of the argument in error messages.
    """
    if isinstance(w0, Start):
        return w0
    if isinstance(w0, str | os.PathLike):
        path = Path(w0)
        w0 = Run.open(path) if path.is_dir() else _file(path)
    if isinstance(w0, Run | MemoryRun):
        return _after(layout, w0)
    if isinstance(w0, nn.Module):
        layout.check_base(w0.state_dict())
        w = parameters.read(w0)
    elif isinstance(w0, Tensor):
        w = w0.detach().float()
    elif isinstance(w0, Mapping):
        if wrong := next((name for name, t in w0.items() if not isinstance(t, Tensor)), None):
            raise UserError(f"{what} is not a state dict: {wrong!r} is a {type(w0[wrong]).__name__}, not a tensor")
        w = layout.flat(w0)
    else:
        raise UserError(f"{what} must be {FORMS}, not a {type(w0).__name__}")
    if tuple(w.shape) != (layout.size,):
        raise UserError(
            f"the model {what} has shape {tuple(w.shape)}, but the federation's model has {layout.size} numbers"
        )
    if not bool(torch.isfinite(w).all()):
        raise UserError(f"the model {what} contains NaN or infinity; train it again with a lower learning rate")
    return Start(w)


def kept_model(layout: Layout, place: Place) -> Tensor:
    """Return the vector of the final model of a finished run."""
    if not place.finished:
        where = place.path or "the run in memory"
        raise UserError(f"{where} is not finished; continue it with --resume, or resume=True in Python, first")
    check_base(layout, place)
    stage = place.summary["final"]
    tensors = place.load_model(stage)
    if tensors is None:
        raise UserError(f"{place.path} has no {stage}.safetensors; repeat the run in another directory")
    return layout.flat(tensors)


def check_base(layout: Layout, place: Place) -> None:
    """Refuse a run whose model has other frozen parameters than the federation's."""
    base = place.config.get("base")
    if base and base != layout.base():
        where = place.path or "the run in memory"
        raise UserError(
            f"{where} was made with other frozen parameters than the federation's model has; build the federation with "
            "the base that the run was made with"
        )


def training_of(place: Place) -> FedAvg | None:
    """Return the settings with which the initial model of a run was trained; None where the run does not say."""
    config, known = place.config, {f.name for f in fields(FedAvg)}
    raw: Any = config.get("training") or config.get("experiment", {}).get("train")
    if raw is None and place.trains and config.get("method", {}).get("name") == FedAvg.name:
        raw = config["method"]
    try:
        return None if raw is None else FedAvg(**{k: v for k, v in raw.items() if k in known})
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"the training settings in {place.path}/config.toml are damaged: {error}") from error


def ridge_of(place: Place) -> Ridge | None:
    """Return the ridge regression that made the initial model of a run; None for any other training."""
    config = place.config
    raw: Any = config.get("ridge")
    if raw is None and place.trains and config.get("method", {}).get("name") == Ridge.name:
        raw = {"ridge": config["method"].get("ridge", Ridge.ridge)}
    if raw is None and config.get("experiment", {}).get("train", {}).get("method") == Ridge.name:
        raw = {}
    try:
        return None if raw is None else Ridge(**raw)
    except (TypeError, ValueError) as error:
        raise UserError(f"the training settings in {place.path}/config.toml are damaged: {error}") from error


def origin(source: Path | None, out: Path | None) -> str | None:
    """Return how config.toml names the run that a model comes from: as seen from the run directory, where there is one.

    So the runs still find each other from any working directory, and after the whole tree was moved.
    """
    if source is None or out is None:
        return None if source is None else str(source)
    return Path(os.path.relpath(source.resolve(), out.resolve())).as_posix()


def trained_of(place: Place) -> Path | None:
    """Return the run whose model a run started from; None if there is none, or it is not there any more."""
    source = place.config.get("trained")
    if not isinstance(source, str) or not source:
        return None
    near = [] if place.path is None else [place.path / source]
    found = next((path for path in (*near, Path(source)) if Run.begun(path)), None)  # before, as seen from anywhere
    return None if found is None else Path(os.path.normpath(found))


def _after(layout: Layout, place: Place) -> Start:
    """Return the start from a finished run: its final model, its history and the clients that it has forgotten."""
    earlier = None if place.trains else Request.from_json(place.request)
    w, known = kept_model(layout, place), (training_of(place), ridge_of(place))
    return Start(w, earlier, history_of(place), *known, place.path, of_run=True)


def history_of(place: Place) -> History | None:
    """Return the history of a run's training; of a run that forgot, what its training recorded and is still of use."""
    if place.path is None or (own := History.open(place.path / "history")) is not None:
        return None if place.path is None else own
    seen: Place = place
    for _ in range(ANCESTORS):
        source = trained_of(seen)
        if source is None:
            return None
        seen = Run.open(source)
        if (found := History.open(source / "history", LASTING)) is not None:
            return found
    return None


def _file(path: Path) -> dict[str, Tensor]:
    """Read a .safetensors file."""
    try:
        return safetensors.torch.load(documents.read(path, None))
    except (UserError, safetensors.SafetensorError) as error:
        raise UserError(f"cannot read the model {path}, which must be a .safetensors file: {error}") from error
