"""Rounds of a run in TensorBoard, MLflow or Weights & Biases, through the ``watch`` function of a run.

Every number in the record of a round is logged under its name in rounds.jsonl, with the round as the step. Trackers
take their own settings from the environment: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, WANDB_PROJECT, WANDB_MODE …
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from fupareto.errors import UserError, did_you_mean
from fupareto.files import put
from fupareto.run.directory import Run
from fupareto.run.execute import Progress

log = logging.getLogger("fupareto")
PROJECT = "fupareto"  # name of the experiment or project, unless the environment names another
IDS = "tracking.json"  # file in the run directory with the trackers' names of the run, for a run that is resumed


class Tracker(Protocol):
    """A run in a tracker.

    Attributes:
        package: Package that must be installed.
        id: The tracker's own name of the run; None if it needs none.
    """

    package: ClassVar[str]
    id: str | None

    def __init__(self, place: Run, known: str | None, first: int) -> None:
        """Start logging.

        Args:
            place: The run.
            known: The tracker's own name of the run, if an earlier process has logged it.
            first: The first round that will be logged.
        """

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of a round."""

    def close(self, failed: bool) -> None:
        """Write what is left."""


class TensorBoard:
    """Event files in the directory ``tensorboard`` of the run."""

    package: ClassVar[str] = "tensorboard"

    def __init__(self, place: Run, known: str | None, first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.id: str | None = None
        where = str(place.path / "tensorboard")
        self._writer = SummaryWriter(where, purge_step=first, flush_secs=10)
        text = json.dumps(place.config, indent=4).replace("\n", "\n    ")
        self._writer.add_text("config", f"    {text}", first)

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of a round."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round_)

    def close(self, failed: bool) -> None:
        """Write what is left."""
        self._writer.close()


class MLflow:
    """A run in an MLflow experiment; the caller's active run is left alone."""

    package: ClassVar[str] = "mlflow"

    def __init__(self, place: Run, known: str | None, first: int) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient()
        if known is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            found = self._client.get_experiment_by_name(name)
            experiment = found.experiment_id if found else self._client.create_experiment(name)
            self.id: str | None = str(self._client.create_run(experiment, run_name=place.path.name).info.run_id)
            params = [Param(key, str(value)) for key, value in flat(place.config).items()]
            for start in range(0, len(params), 100):  # the most that MLflow takes at once
                self._client.log_batch(self.id, params=params[start : start + 100])
        else:
            self.id = known
            self._client.update_run(known, status="RUNNING")

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of a round."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self.id, metrics=[Metric(name, value, now, round_) for name, value in numbers.items()])

    def close(self, failed: bool) -> None:
        """Mark the run as finished or failed."""
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


class WandB:
    """A run in a Weights & Biases project; the caller's active run is left alone."""

    package: ClassVar[str] = "wandb"

    def __init__(self, place: Run, known: str | None, first: int) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=place.path.name,
            id=known,
            resume="allow",
            reinit="create_new",
            config=dict(place.config),
        )
        self.id: str | None = str(self._run.id)

    def log(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of a round."""
        self._run.log(dict(numbers), step=round_)

    def close(self, failed: bool) -> None:
        """Wait until everything is written."""
        self._run.finish(exit_code=int(failed))


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


class Tracking:
    """A ``watch`` function that logs every round of a run, and a context manager that closes the trackers.

    A tracker that cannot be opened stops the run with an error; one that fails later is warned of, and the run goes on.

    Args:
        names: Names of trackers: tensorboard, mlflow, wandb.
        out: Run directory of the run that is watched.
    """

    def __init__(self, names: Sequence[str], out: str | Path) -> None:
        for name in names:
            if name not in TRACKERS:
                hint = did_you_mean(name, TRACKERS)
                raise UserError(f"the tracker '{name}' is unknown; choose from {', '.join(TRACKERS)}{hint}")
            if find_spec(TRACKERS[name].package) is None:
                raise UserError(
                    f"logging to {name} needs the package {TRACKERS[name].package}, which is not installed: "
                    f"pip install 'fupareto[{name}]', or in a clone of the repository pip install '.[{name}]'"
                )
        self.names, self.out = tuple(dict.fromkeys(names)), Path(out)
        self._open: dict[str, Tracker] | None = None

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Log the record of a round; records of an audit's further training have no phase, and are left out."""
        if "phase" not in record:
            return
        if self._open is None:
            self._open = {}
            for name in self.names:
                self._open[name] = self._opened(name, record["round"])
        found = numbers(record)
        for name, tracker in list(self._open.items()):
            self._guarded(name, lambda tracker=tracker: tracker.log(record["round"], found))  # type: ignore[misc]

    def beside(self, progress: Progress) -> Progress:
        """Return a progress display that logs the rounds that it shows."""

        @contextmanager
        def logged(title: str, rounds: int) -> Iterator[Callable[[dict[str, Any]], None]]:
            with progress(title, rounds) as show:

                def watch(record: dict[str, Any]) -> None:
                    if show is not None:
                        show(record)
                    self(record)

                yield watch

        return logged if self.names else progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name, tracker in list((self._open or {}).items()):
            self._guarded(name, lambda tracker=tracker: tracker.close(kind is not None))  # type: ignore[misc]

    def _opened(self, name: str, first: int) -> Tracker:
        """Open a tracker, and store the tracker's own name of the run."""
        place, file = Run.open(self.out), self.out / IDS
        ids = json.loads(file.read_bytes()) if file.is_file() else {}
        try:
            tracker = TRACKERS[name](place, ids.get(name), first)
        except Exception as error:
            raise UserError(
                f"cannot log to {name}: {str(error).rstrip('.')}; the run can be continued with --resume, with or "
                f"without {name}"
            ) from error
        if tracker.id not in (None, ids.get(name)):
            put(file, json.dumps({**ids, name: tracker.id}).encode() + b"\n")
        return tracker

    def _guarded(self, name: str, action: Callable[[], None]) -> None:
        """Act on a tracker; one that fails is not used again."""
        try:
            action()
        except Exception as error:
            log.warning("logging to %s has stopped: %s", name, error)
            assert self._open is not None  # a tracker was open
            del self._open[name]


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record, without its round."""
    return {
        key: float(value)
        for key, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key != "round"
    }


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping as a flat one: ``{"a": {"b": 1}}`` is ``{"a.b": 1}``."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
