"""Storage of a run in memory, for programs that do not need a run directory."""

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor

from fupareto.run.directory import without_none

T = TypeVar("T")


class MemoryRun:
    """In-memory counterpart of a run directory.

    Args:
        config: Content of config.toml.
        request: Content of request.json; None for a training run.
    """

    path = None  # no directory
    waiting = None  # no checkpoint with a record

    def __init__(self, config: Mapping[str, Any] | None = None, request: Mapping[str, Any] | None = None) -> None:
        self.config: dict[str, Any] = without_none(config or {})
        self.request = dict(request or {})
        self.summary: dict[str, Any] = {}
        self.audit: dict[str, Any] | None = None
        self._rounds: list[dict[str, Any]] = []
        self._models: dict[str, dict[str, Tensor]] = {}

    @property
    def trains(self) -> bool:
        """Return whether the run is a training run, without a request."""
        return not self.request

    @property
    def finished(self) -> bool:
        """Return whether the run is finished: it has a summary."""
        return bool(self.summary)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append the record of a round."""
        self._rounds.append(dict(record))

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records of all rounds."""
        return self._rounds

    def save_state(self, state: Any, waiting: Mapping[str, Any] | None = None) -> None:
        """Do nothing; a run in memory has no checkpoints."""

    def load_state(self, cls: type[T]) -> T | None:
        """Return None; a run in memory has no checkpoints."""
        return None

    def save_replay(self, round_: int, before: Any, after: Any) -> None:
        """Do nothing; a run in memory cannot be replayed."""

    def save_model(self, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep the model of a stage."""
        self._models[stage] = dict(tensors)

    def load_model(self, stage: str) -> dict[str, Tensor] | None:
        """Return the model of a stage; None if the run has not reached the stage."""
        return self._models.get(stage)

    def save_results(self, summary: Mapping[str, Any], audit: Mapping[str, Any] | None) -> None:
        """Keep the summary and, if there is one, the audit."""
        self.summary = dict(summary)
        if audit is not None:
            self.audit = dict(audit)
