"""Inventory of what still carries the forgotten below a directory, and why.

Runs that start from each other's models are a family: a training, the requests answered after it, and their retrained
models. A model carries a request of its family unless the request was answered, or its data were left out, when the
model was made. What names the forgotten but was not computed from their data is listed as well: ids, row numbers,
measurements.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence import models, purges
from fupareto.run.directory import Run
from fupareto.run.storage import CHECKPOINT, DOCUMENTS, MODELS
from fupareto.vocabulary import RETRAINED, SECOND, STAGES, retrains, shadows_of

CARRIES, NAMES, CLEAN = "carries", "names", "clean"
OWN = {*DOCUMENTS, *MODELS, "manifest.json", "certificate.json", purges.FILE, "demo.json", ".lock"}
NESTED = ("training", RETRAINED, SECOND)  # runs that belong to the run whose directory they are in
Asked = Mapping[str, Any]  # content of request.json


@dataclass(frozen=True)
class Artefact:
    """One file, or several of one kind, below a directory.

    Attributes:
        path: The file, or the directory and pattern of several.
        files: The files.
        status: "carries", "names" or "clean".
        requests: The requests that it carries, in words.
        why: Reason in words.
        removable: Whether a purge removes it.
        bytes: Size of the files.
    """

    path: Path
    files: tuple[Path, ...]
    status: str
    requests: tuple[str, ...]
    why: str
    removable: bool = False
    bytes: int = 0


@dataclass
class Found:
    """A run directory with what the inventory needs to know of it."""

    run: Run
    config: dict[str, Any]
    request: dict[str, Any] | None
    weights: dict[str, str] = field(default_factory=dict)  # stage -> SHA-256 of the weights

    @property
    def path(self) -> Path:
        """Return the directory."""
        return self.run.path

    @property
    def final(self) -> str | None:
        """Return the SHA-256 of the weights that the run ended with; None while it is not finished."""
        if self.request is None:
            return self.weights.get("initial")
        return self.weights.get(self.run.summary.get("final", "")) if self.run.finished else None

    def answered(self, stage: str) -> list[Asked]:
        """Return what the model of a stage was made without."""
        asked = self.request or {}
        before: list[Asked] = [{"clients": asked["left"]}] if asked.get("left") else []
        return before if stage == "initial" else [*before, asked]


def words(asked: Asked) -> str:
    """Return a request in words."""
    if asked.get("samples"):
        rows = asked["samples"]
        return f"{sum(map(len, rows.values()))} samples of {', '.join(rows)}"
    if asked.get("classes"):
        return f"class {', '.join(map(str, asked['classes']))}"
    return f"client {', '.join(map(str, asked.get('clients', ())))}"


def covered(asked: Asked, by: list[Asked]) -> bool:
    """Return whether a model that was made without ``by`` does not carry a request."""
    clients = {str(c) for one in by if not one.get("samples") for c in one.get("clients", ())}
    if asked.get("samples"):
        without = {(i, r) for one in by for i, rows in one.get("samples", {}).items() for r in rows}
        return all(i in clients or (i, r) in without for i, rows in asked["samples"].items() for r in rows)
    if asked.get("classes"):
        return set(asked["classes"]) <= {c for one in by for c in one.get("classes", ())}
    return set(map(str, asked.get("clients", ()))) <= clients


def find(where: Path) -> tuple[list[Found], list[str]]:
    """Return the run directories below a directory, and remarks on those that cannot be read."""
    if not where.is_dir():
        raise UserError(f"there is no directory {where}")
    found, remarks = [], []
    for folder, names, files in os.walk(where):  # symbolic links are not followed
        names.sort()
        if "config.toml" not in files:
            continue
        run = Run(Path(folder))
        try:
            config = run.config
            request = None if run.trains else run.request
            weights = {
                stage: models.identity(run.path, stage)["weights"]
                for stage in STAGES
                if (run.path / f"{stage}.safetensors").is_file()
            }
            if "format" in config:
                found.append(Found(run, config, request, weights))
        except UserError as error:
            remarks.append(str(error))
    return found, remarks


def families(found: list[Found]) -> list[list[Found]]:
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


def take(where: Path) -> tuple[list[Artefact], list[str]]:
    """Return the artefacts below a directory that belong to a family with requests, and remarks."""
    found, remarks = find(where)
    artefacts: list[Artefact] = []
    for family in families(found):
        requests = {words(one.request): one.request for one in family if one.request}
        if not requests:
            continue
        unfinished = [one for one in family if not one.run.finished]
        remarks += [f"{one.path} is not finished; what it starts from is kept until it is" for one in unfinished]
        starts = {one.weights.get("initial") for one in family if one.request}
        for one in family:
            artefacts += _of(one, requests, not unfinished, starts)
            for name in sorted(p.name for p in one.path.iterdir() if p.is_file() and p.name not in OWN):
                remarks.append(f"{one.path / name} is not a file of a run, and was not examined")
    return artefacts, remarks


def _of(one: Found, requests: Mapping[str, Asked], settled: bool, starts: set[str | None]) -> Iterator[Artefact]:
    """Yield the artefacts of one run.

    Args:
        one: The run.
        requests: All requests of its family.
        settled: Whether all runs of the family are finished, so that what they start from is needed no more.
        starts: Weights from which runs of the family started.
    """

    def carried(by: list[Asked]) -> tuple[str, ...]:
        return tuple(name for name, asked in requests.items() if not covered(asked, by))

    for stage in one.weights:
        path, left = one.path / f"{stage}.safetensors", carried(one.answered(stage))
        if stage == "initial" and left:
            yield _artefact(path, [path], left, "the model before the request, trained with them", settled)
        elif left:
            passed = one.final in starts
            why = "made before the later request" + (
                "" if passed else "; no later model takes its place, so it is kept"
            )
            yield _artefact(path, [path], left, why, settled and passed)
        else:
            yield _artefact(path, [path], (), _result(one))
    if (state := one.path / CHECKPOINT).is_file():
        yield _artefact(state, [state], tuple(requests), "the state of a run that dealt with them", one.run.finished)
    if kept := sorted((one.path / "replay").glob("*.safetensors")):
        begun = "unlearned" if _retrains(one) else "initial"  # a retrained model does not start from the initial one
        why = "states of rounds, to compute them again, with models from before all of it was forgotten"
        yield _artefact(one.path / "replay", kept, carried(one.answered(begun)), why, settled)
    yield from _history(one.path / "history", tuple(requests), settled)
    yield from _shadows(one, requests, settled)
    documents = [one.path / n for n in (*DOCUMENTS, "certificate.json", purges.FILE) if (one.path / n).is_file()]
    why = "ids, row numbers and measurements by client; kept as evidence"
    yield Artefact(one.path, tuple(documents), NAMES, tuple(requests), why, False, _size(documents))


def _retrains(one: Found) -> bool:
    return retrains(one.config.get("method"))


def _result(one: Found) -> str:
    if _retrains(one):
        return "retrained without them: it never saw them"
    return "made to forget them; how well is in summary.json and audit.json"


def _history(folder: Path, requests: tuple[str, ...], settled: bool) -> Iterator[Artefact]:
    """Yield the history of a training: local models, and global ones to which the forgotten contributed."""
    for part in sorted(p for p in folder.glob("*") if p.is_dir() and not p.is_symlink()):
        models = sorted(part.rglob("*.safetensors"))
        if models:
            why = "local models of the training, of the forgotten and of clients that trained with them"
            yield _artefact(part, models, requests, why, settled)


def _shadows(one: Found, requests: Mapping[str, Asked], settled: bool) -> Iterator[Artefact]:
    folder = one.path / "shadows"
    known = {shadows_of(asked): asked for asked in requests.values()}
    for place in [folder, *sorted(p for p in folder.glob("*") if p.is_dir() and not p.is_symlink())]:
        for kind, why in (
            ("with", "shadow models that were trained with half of their samples"),
            ("forgotten", "shadow models that were trained with half of their samples, and then unlearned"),
            ("without", "shadow models that never saw them"),
        ):
            models = sorted(place.glob(f"{kind}-*.safetensors"))
            by = [known[place.name]] if kind == "without" and place.name in known else []
            left = tuple(name for name, asked in requests.items() if not covered(asked, by))
            if models:
                yield _artefact(place / f"{kind}-*", models, left, why, settled)


def _artefact(path: Path, files: list[Path], requests: tuple[str, ...], why: str, removable: bool = False) -> Artefact:
    status = CARRIES if requests else CLEAN
    return Artefact(path, tuple(files), status, requests, why, removable and bool(requests), _size(files))


def _size(files: list[Path]) -> int:
    return sum(path.lstat().st_size for path in files)
