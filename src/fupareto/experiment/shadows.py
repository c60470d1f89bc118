"""Creation and storage of the shadow models of a run, with one process per core.

    TRAINED/shadows/REQUEST/with-0007.safetensors     trained on a random half of every forget client's samples
    TRAINED/shadows/REQUEST/without-0007.safetensors  trained by the retained clients alone
    RUN/shadows/forgotten-0007.safetensors            with-0007, unlearned as the run was

TRAINED is the directory of the training run, RUN that of the audited run. Finished files are reused: an interrupted
audit continues, and runs of other methods on the same request share the trained models.
"""

import functools
import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from fupareto import files, seal
from fupareto.allocation import keep_freed_memory
from fupareto.audit.attacks.shadowed import Shadowed
from fupareto.config import Experiment, validate
from fupareto.cores import usable_cores
from fupareto.errors import NotApplicable, UserError
from fupareto.experiment import shadow_models
from fupareto.experiment.host import SILENT, Host
from fupareto.experiment.setting import federation, stored_experiment, stored_method, training
from fupareto.federation import Request, SimulatedFederation
from fupareto.methods.registry import find, kind
from fupareto.run.directory import Run
from fupareto.run.execute import Progress, no_progress
from fupareto.run.start import trained_of
from fupareto.run.storage import Storage
from fupareto.vocabulary import shadows_of

DEFAULT = {2: 4, 3: 64}  # tier -> number of shadow models


def make(
    place: Run,
    tier: int,
    count: int | None = None,
    host: Host = SILENT,
) -> Shadowed:
    """Create the shadow models of a tier; their expected cost is announced first.

    Args:
        place: The run to audit.
        tier: 2 or 3.
        count: Number of shadow models; None takes the default of the tier.
        host: Surroundings of the audit, but for the device: every model is made by a process on the CPU.

    Returns:
        The shadow models, to be loaded one by one.
    """
    if any(place.request.get(key) for key in ("left", "left_samples", "left_classes")):
        raise NotApplicable("shadow models support only the first request after a training; audit later ones at tier 1")
    count = DEFAULT[tier] if count is None else count
    least = {2: 2, 3: 4}[tier]
    if count < 2 * least or count % least:
        raise UserError(
            f"the number of shadow models at tier {tier} must be a multiple of {least} and at least {2 * least}, "
            f"not {count}"
        )
    each = count if tier == 2 else count // 2
    own = Shadows(place, host.root)
    wanted = [("with", k) for k in range(each)]
    if tier == 3:
        wanted += [("without", k) for k in range(each)] + [("forgotten", k) for k in range(each)]
    own.announce(wanted, host.say)
    own.make(wanted, host.progress)
    asked = Request.from_json(place.request)
    engine, _ = federation(own.experiment, asked, host.root)
    forget = asked.sides(engine.ids)[0]
    return Shadowed(
        tier, each, own.load, lambda number: shadow_models.halves(engine, forget, own.experiment.seed, number)
    )


@dataclass(frozen=True)
class Job:
    """One shadow model to create, as plain values that can be passed to another process.

    Attributes:
        kind: "with", "without" or "forgotten".
        number: Number of the shadow model.
        out: File to write.
        trained: File of the trained shadow model that a "forgotten" one starts from.
        experiment: The experiment, as JSON.
        request: The request, as JSON.
        method: Name and options of the method, as JSON.
        stage: Final stage of the audited run.
        root: Directory of the data sets.
    """

    kind: str
    number: int
    out: str
    trained: str
    experiment: str
    request: str
    method: str
    stage: str
    root: str | None


class Shadows:
    """Shadow models of a run.

    Args:
        place: The run to audit.
        root: Directory of the data sets.
    """

    def __init__(self, place: Run, root: Path | None) -> None:
        self.place, self.root = place, root
        self.experiment = stored_experiment(place)
        self.request = {k: v for k, v in place.request.items() if k != "received"}
        shared = trained_of(place) or place.path
        self.trained, self.forgotten = shared / "shadows" / shadows_of(self.request), place.path / "shadows"

    def path(self, which: str, number: int) -> Path:
        """Return the file of a shadow model."""
        return (self.forgotten if which == "forgotten" else self.trained) / f"{which}-{number:04}.safetensors"

    def missing(self, wanted: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the shadow models of ``wanted`` that do not exist yet."""
        return [(which, number) for which, number in wanted if not self.path(which, number).is_file()]

    def make(self, wanted: Sequence[tuple[str, int]], progress: Progress = no_progress) -> None:
        """Create the shadow models of ``wanted`` that are missing; all are trained before any is unlearned."""
        todo = self.missing(wanted)
        if not todo:
            return
        method = self.place.config["method"]
        stored_method(self.place, method["name"])
        if any(which == "forgotten" for which, _ in todo) and ("requests" in method or kind(method["name"]).history):
            why = "a history of the training" if "requests" not in method else "clients that are forgotten one by one"
            raise NotApplicable(f"{method['name']} needs {why}, which shadow models do not support; audit it at tier 2")
        self._folders()
        first = [job for job in todo if job[0] != "forgotten"]
        with progress("shadow models", len(todo)) as watch:
            done = 0

            def count() -> None:
                nonlocal done
                done += 1
                if watch:
                    watch({"round": done, "unit": "model", "said": "made like the run's own"})

            with Storage(self.trained).locked(), Storage(self.forgotten).locked():
                for folder in (self.trained, self.forgotten):
                    files.remove_parts(folder)  # of an audit that was killed
                for part in (first, [job for job in todo if job[0] == "forgotten"]):
                    _together([self._job(which, number) for which, number in part], count)

    def _folders(self) -> None:
        """Create the directories of the shadow models."""
        for folder in (self.trained.parent, self.trained, self.forgotten):
            if folder.is_symlink():
                raise UserError(f"{folder} is a symbolic link; a run directory holds its files itself")
            try:
                files.make_directory(folder)
            except OSError as error:
                raise UserError(f"cannot write shadow models into {folder}: {error.strerror}") from error

    def announce(self, wanted: Sequence[tuple[str, int]], say: Callable[[str], None]) -> None:
        """Announce how many shadow models are missing and, from the cost of the run itself, how long they will take."""
        todo = self.missing(wanted)
        if not todo:
            return say(f"Shadow models: all {len(wanted)} already exist.")
        answering = sum(which == "forgotten" for which, _ in todo)
        training = len(todo) - answering
        parent = trained_of(self.place)
        text = f"Shadow models: {training} to train in {self.experiment.train.rounds} rounds each"
        text += f", {answering} to unlearn" if answering else ""
        if parent is not None and Run.open(parent).finished:
            cores = usable_cores()
            alone = training * Run.open(parent).summary["cost"]["seconds"]
            alone += answering * self.place.summary["cost"]["seconds"]
            text += f"; at most {alone / 60:.0f} minutes if each takes as long as the run's own, {cores} at a time"
        return say(text + ".")

    def load(self, which: str, number: int) -> Tensor:
        """Return the vector of a shadow model."""
        path = self.path(which, number)
        try:
            return _load(path)
        except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
            raise UserError(f"the shadow model {path} is damaged ({error}); delete it and audit again") from error

    def _job(self, which: str, number: int) -> Job:
        """Return the job that creates a shadow model."""
        return Job(
            which,
            number,
            str(self.path(which, number)),
            str(self.path("with", number)),
            json.dumps(self.experiment.model_dump()),
            json.dumps(self.request),
            json.dumps(self.place.config["method"]),
            self.place.summary["final"],
            None if self.root is None else str(self.root),
        )


def _together(jobs: Sequence[Job], done: Callable[[], None]) -> None:
    """Run the jobs, one process per core: with small models, threads would wait for the Python interpreter lock."""
    workers = min(usable_cores(), len(jobs))
    if not workers:
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin) as pool:
        futures: list[Future[None]] = [pool.submit(_work, job) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()
                done()
        except OSError as error:  # a full disk, or one that is read-only
            pool.shutdown(wait=False, cancel_futures=True)
            raise UserError(
                f"cannot write the shadow model {error.filename or ''}: {error.strerror}; audit again to continue"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin() -> None:
    """Set up a process that trains shadow models."""
    keep_freed_memory()
    _end_with_parent()


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, however that ended."""
    parent = parent_process()
    if parent is not None:
        watch = threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True)
        watch.start()


@functools.cache
def _setting(experiment: str, request: str, root: str | None) -> tuple[Experiment, Request, SimulatedFederation]:
    """Return the experiment, request and federation of a job; built once per process."""
    loaded, asked = validate(json.loads(experiment), "the experiment"), Request.from_json(json.loads(request))
    engine, _ = federation(loaded, asked, None if root is None else Path(root), workers=1)
    return loaded, asked, engine


def _work(job: Job) -> None:
    """Create one shadow model; runs in a process of its own."""
    torch.set_num_threads(1)
    experiment, request, engine = _setting(job.experiment, job.request, job.root)
    forget = request.sides(engine.ids)[0]
    seed = experiment.seed
    masks = None if job.kind == "without" else shadow_models.halves(engine, forget, seed, job.number)
    own = shadow_models.own_seed(seed, job.kind == "without", job.number)
    if job.kind == "forgotten":
        w = _load(Path(job.trained))
        w = shadow_models.forget(engine, request, masks or {}, w, _method(json.loads(job.method)), job.stage, own)
    else:
        w = shadow_models.train(engine, forget, masks, training(experiment), own)
    files.put(Path(job.out), seal.sealed({"w": w}))


def _load(path: Path) -> Tensor:
    """Return the vector in a file of a shadow model."""
    return seal.unsealed(files.read(path))["w"]


def _method(config: dict[str, Any]) -> Any:
    """Return the method of a run from its configuration, which has no entries for options that are None."""
    name = config["name"]
    known = {f.name for f in fields(kind(name))}
    return find(name, {k: v for k, v in config.items() if k in known})
