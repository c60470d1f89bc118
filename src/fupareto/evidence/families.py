"""Runs below a directory: what can be read of them, and which of them belong together.

Runs that start from each other's models are a family: a training, the requests answered after it, and their retrained
models. A run that is damaged is found as well, with the reason: it may carry the forgotten, and what the others of its
family are needed for is not known without it.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fupareto.errors import UserError
from fupareto.evidence import models
from fupareto.evidence.asking import Request
from fupareto.run.directory import Run
from fupareto.run.manifest import FILE as MANIFEST
from fupareto.run.storage import CHECKPOINT, MODELS
from fupareto.vocabulary import RETRAINED, SECOND, STAGES

NESTED = ("training", RETRAINED, SECOND)  # runs that belong to the run whose directory they are in
STATES = ("checkpoint", "replay", "history", "shadows")  # directories of a run that hold no other runs
T = TypeVar("T")


@dataclass
class Found:
    """A run directory with what the inventory needs to know of it.

    Attributes:
        run: The run.
        config: Its configuration; empty if it cannot be read.
        request: Its request; None for a training, or if it cannot be read.
        weights: SHA-256 of the weights of every stage whose model can be read.
        flaw: Why the run cannot be relied on; empty if it can.
    """

    run: Run
    config: dict[str, Any]
    request: dict[str, Any] | None
    weights: dict[str, str] = field(default_factory=dict)
    flaw: str = ""

    @property
    def path(self) -> Path:
        """Return the directory."""
        return self.run.path

    @property
    def unknown(self) -> bool:
        """Return whether the run may have a request that cannot be read."""
        return bool(self.flaw) and self.request is None and self.config.get("kind") != "train"

    @property
    def final(self) -> str | None:
        """Return the SHA-256 of the weights that the run ended with; None while it is not finished, or if purged."""
        if self.request is None:
            return self.weights.get("initial")
        return self.weights.get(self.run.summary["final"]) if self.run.finished else None

    def purged(self, stage: str) -> bool:
        """Return whether an interrupted purge was to remove a model besides the one that the run ended with."""
        decided = f"{stage}.safetensors" in self.run.manifest().removed
        return decided and self.run.finished and stage != self.run.summary["final"]

    def answered(self, stage: str) -> list[Request]:
        """Return what the model of a stage was made without."""
        asked = self.request or {}
        kinds = {"clients": "left", "samples": "left_samples", "classes": "left_classes"}
        before: list[Request] = [{kind: asked[left]} for kind, left in kinds.items() if asked.get(left)]
        return before if stage == "initial" else [*before, asked]


def find(where: Path) -> tuple[list[Found], list[str]]:
    """Return the run directories below a directory, and remarks on what else could not be examined."""
    if not where.is_dir():
        raise UserError(f"there is no directory {where}")
    found: list[Found] = []
    remarks: list[str] = []

    def unread(error: OSError) -> None:
        remarks.append(f"cannot read {error.filename}: {error.strerror}; what lies in it was not examined")

    for folder, names, files in os.walk(where, onerror=unread):  # symbolic links are not followed
        names.sort()
        path = Path(folder)
        has_config, has_states = "config.toml" in files, _has_states(path, files)
        config = _tried(_config, path) if has_config else None
        if has_states or (has_config and MANIFEST in files) or (config is not None and "format" in config):
            names[:] = [name for name in names if name not in STATES]
            found.append(_read(path, config or {}))
            continue
        if has_config and config is None:
            remarks.append(f"{path / 'config.toml'} cannot be read; whether it is that of a run is not known")
        if strays := [name for name in files if name.endswith(".safetensors")]:
            remarks.append(f"{path} has .safetensors files that belong to no run: {_few(strays)}; not examined")
    return found, remarks


def _has_states(path: Path, files: Sequence[str]) -> bool:
    """Return whether a directory has models or states of a run, whatever else is missing there."""
    if not set(MODELS).isdisjoint(files) or (path / CHECKPOINT).is_file() or (path / "history/index.json").is_file():
        return True
    return any((path / "replay").glob("*.safetensors"))


def _read(path: Path, config: dict[str, Any]) -> Found:
    run = Run(path)
    request = _tried(_request, path) if not run.trains else None
    present = [stage for stage in STAGES if (path / f"{stage}.safetensors").is_file()]
    read = {stage: _tried(models.identity, path, stage) for stage in present}
    weights = {stage: identity["weights"] for stage, identity in read.items() if identity is not None}
    unread = [stage for stage in present if stage not in weights]
    return Found(run, config, request, weights, _flaw(path, unread))


def _config(path: Path) -> dict[str, Any]:
    return Run(path).config


def _request(path: Path) -> dict[str, Any]:
    return Run(path).request


def _tried(read: Callable[..., T], *args: Any) -> T | None:
    """Return what a reader returns; None for what cannot be read."""
    try:
        return read(*args)
    except UserError:
        return None


def _few(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")


def _flaw(path: Path, unread: Sequence[str]) -> str:
    """Return why a run cannot be relied on: damaged, incomplete, or without the model that it ended with."""
    try:
        run = Run.open(path)  # refuses what does not match the manifest
        if run.trains and run.config.get("kind") == "unlearn":
            return f"{path / 'request.json'} is missing, although the run answers a request; restore it from a copy"
        if not run.trains:
            _ = run.request
        for stage in unread:
            models.identity(path, stage)  # says what is wrong with it
        final = run.summary.get("final") if run.finished else None
        if run.finished and not run.trains and final is None:
            return f"{path / 'summary.json'} does not name the model that the run ended with; restore it from a copy"
        kept = f"{final}.safetensors"
        if final is not None and not (path / kept).is_file() and kept not in run.manifest().removed:
            return f"{path / kept} is missing, the model that the run ended with; restore it from a copy"
    except UserError as error:
        return str(error)
    return ""


def families(found: Sequence[Found]) -> list[list[Found]]:
    """Return the runs that share a model, or of which one names or holds the other, in groups."""
    groups: list[tuple[set[str], list[Found]]] = []
    for one in found:
        marks = {str(one.path.resolve()), *one.weights.values()}
        if source := one.config.get("trained"):  # as seen from the run; before, from the working directory
            marks |= {str((base / str(source)).resolve()) for base in (one.path, Path())}
        if one.path.name in NESTED:
            marks.add(str(one.path.parent.resolve()))
        joined = [one]
        for group in [g for g in groups if g[0] & marks]:
            groups.remove(group)
            marks |= group[0]
            joined = [*group[1], *joined]
        groups.append((marks, joined))
    return [members for _, members in groups]
