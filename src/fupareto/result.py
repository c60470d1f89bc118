"""Result of a run: its models, summary, audit and report."""

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Union

from torch import Tensor, nn

from fupareto.audit import assemble
from fupareto.audit.assemble import Extent
from fupareto.audit.attacks.shadowed import Shadowed
from fupareto.audit.checks import Thresholds
from fupareto.audit.dormancy import ROUNDS as DORMANCY
from fupareto.audit.further import Curves, not_stored
from fupareto.audit.summary import summarise
from fupareto.audit.training import Progress, no_progress
from fupareto.errors import UserError
from fupareto.federation import Federation, Request
from fupareto.files import put
from fupareto.methods import FedAvg
from fupareto.report import render
from fupareto.run.directory import Run, refuse_certified
from fupareto.run.loop import Outcome
from fupareto.run.reference import PLACES, UNKNOWN, Answered, Comparison, count_of, retraining_facts, retraining_seed
from fupareto.run.start import Place, Start, check_base, start_from
from fupareto.vocabulary import STAGES

Model = Union[Tensor, nn.Module, Mapping[str, Tensor], str, "os.PathLike[str]", Run, Start, "Result"]
References = Model | Sequence[Model]  # one retrained model, or two
FACTS = ("name", "method", "dataset", "model", "seed", "versions", "created", "stored", "task", "base")


@dataclasses.dataclass
class Result:
    """Result of a finished run, as :func:`train` and :func:`unlearn` return it.

    Attributes:
        outcome: Federation, models and rounds of the run.
        request: What was forgotten; None for a training run.
        seed: Seed of all random choices.
        facts: Entries of the summary that are not measured: name, method, dataset, model, seed, versions.
    """

    outcome: Outcome
    request: Request | None
    seed: int
    facts: Mapping[str, Any]

    @classmethod
    def load(cls, federation: Federation, run: str | Path | Run) -> "Result":
        """Load the result of a finished run.

        Args:
            federation: The clients that the run was made with, undivided.
            run: Run directory.

        Returns:
            The result.
        """
        place = run if isinstance(run, Run) else Run.open(_path(run))
        if not place.finished:
            raise UserError(f"{place.path} is not finished; continue it with --resume, or resume=True in Python, first")
        return cls.of(place, federation if place.trains else federation.divided(Request.from_json(place.request)))

    @classmethod
    def of(cls, place: Run, federation: Federation) -> "Result":
        """Return the result of a finished run.

        Args:
            place: The run.
            federation: The clients, already divided for the run's request.

        Returns:
            The result.
        """
        summary, config = place.summary, place.config
        check_base(federation.layout, place)
        if "task" in summary:
            federation = federation.judged(federation.task.agreed(summary["task"], "the run's", "the federation's"))
        request = None if place.trains else Request.from_json(place.request)
        if request is None:
            forget = tuple(i for i in federation.ids if i in summary["forget"])
            sides = forget, tuple(i for i in federation.ids if i not in forget)
        else:
            sides = request.sides(federation.ids)
        seed = config.get("seed", config.get("experiment", {}).get("seed", 0))
        outcome = Outcome(federation, place, sides, request.words() if request else "")
        return cls(outcome, request, seed, {key: summary[key] for key in FACTS if key in summary})

    @property
    def place(self) -> Place:
        """Return the storage of the run: a run directory, or memory."""
        return self.outcome.place

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Return the records of all rounds (the lines of rounds.jsonl)."""
        return self.place.rounds()

    def model(self, stage: str | None = None) -> dict[str, Tensor]:
        """Return the model of a stage.

        Args:
            stage: "initial", "unlearned" or "recovered"; by default the stage that the summary names as ``final``.

        Returns:
            The state dict, complete for ``load_state_dict``.
        """
        stage = stage or self.summary()["final"]
        tensors = self.place.load_model(stage)
        if tensors is None:
            existing = [s for s in STAGES if self.place.load_model(s) is not None]
            raise UserError(f"the run has no model of stage '{stage}'; it has {', '.join(existing)}")
        return self.outcome.federation.layout.state_dict(tensors)

    def summary(self) -> dict[str, Any]:
        """Return the summary (the content of summary.json); the first call measures the models."""
        if not self.place.finished:
            self.place.save_results(self._measured(), None)
        return self.place.summary

    def audit(
        self,
        retrain: int = 0,
        training: FedAvg | None = None,
        reference: References | None = None,
        thresholds: Thresholds | Mapping[str, float] | None = None,
        dormancy: int | None = None,
    ) -> dict[str, Any]:
        """Audit the models: attack them, compare them, and check the numbers against thresholds.

        Args:
            retrain: Compare with a model that is retrained without the forgotten data, by the training's settings; a
                run directory has it in ``retrained``. 2 makes another one from another seed (``retrained-2``), which
                says how much retrained models differ.
            training: The settings of the training, where the run does not know them.
            reference: A model that was retrained already, in any form that ``w0`` of ``unlearn`` may have, or a list of
                two.
            thresholds: Where a number is good enough, such as ``{"asr": 0.02}``.
            dormancy: Rounds for which the retained clients train the model on, to see what comes back; 0 for none. By
                default 40, if the run had as many and how clients train is known.

        Returns:
            The audit (the content of audit.json).
        """
        limits = Thresholds.of(thresholds)
        if self.request is None:
            raise UserError("a training run forgets nothing and cannot be audited; audit the result of unlearn()")
        if self.place.path is not None:
            refuse_certified(self.place.path)
        against = self._comparison(count_of(retrain), training, reference)
        extent = self._extent(against, dormancy)
        summary = self.place.summary if self.place.finished else self._measured()
        summary, found = self._attacked(summary, extent, limits, against.notes)
        self.place.save_results(summary, found)
        return found

    def remeasure(
        self,
        reference: References | None = None,
        shadowed: Shadowed | None = None,
        thresholds: Thresholds | Mapping[str, float] | None = None,
        dormancy: int | None = None,
        curves: Curves = not_stored,
        progress: Progress = no_progress,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Measure and audit the models again without writing anything.

        Args:
            reference: Retrained model to compare with.
            shadowed: Shadow models, for the attacks of tiers 2 and 3.
            thresholds: Limits of the checks.
            dormancy: Rounds for which the retained clients train the model on.
            curves: Store of the curves of further training.
            progress: How rounds are shown while they run.

        Returns:
            The summary, and the audit; None in its place for a training run.
        """
        summary = self._measured()
        if self.request is None:
            return summary, None
        extent = self._extent(self._comparison(0, None, reference), dormancy)
        extent = dataclasses.replace(extent, shadowed=shadowed, curves=curves)
        return self._attacked(summary, extent, Thresholds.of(thresholds), (), progress)

    def report(self, path: str | Path) -> Path:
        """Write the HTML report, with the audit if there is one.

        Args:
            path: File to write.

        Returns:
            The path of the file.
        """
        page = render(self.summary(), self.rounds, self.place.config, self.place.audit)
        try:
            put(Path(path), page.encode())
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error
        return Path(path)

    @property
    def _models(self) -> dict[str, Tensor]:
        return {stage: w for stage in STAGES if (w := self.outcome.model(stage)) is not None}

    def _measured(self) -> dict[str, Any]:
        """Measure the models and return the summary."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        outcome = self.outcome
        with outcome.federation.session():
            numbers = summarise(outcome.federation, self._models, outcome.sides, self.rounds, outcome.part)
            bound = {"data": outcome.federation.digests(), "frozen": outcome.federation.layout.frozen()}
        made = {"created": created, "stored": outcome.stored}
        return {"format": 1, **made, **self.facts, **numbers, **bound}

    def _attacked(
        self,
        summary: dict[str, Any],
        extent: Extent,
        thresholds: Thresholds | None,
        notes: tuple[str, ...],
        progress: Progress = no_progress,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        outcome = self.outcome
        with outcome.federation.session():
            found = assemble.audit(
                outcome.federation,
                self._models,
                outcome.sides,
                self.rounds,
                summary,
                seed=self.seed,
                extent=extent,
                thresholds=thresholds,
                progress=progress,
            )
        if notes:
            found["notes"] = list(notes)
        return assemble.with_membership(summary, found), found

    def _extent(self, against: Comparison, dormancy: int | None) -> Extent:
        """Return how thorough the audit is; by default it trains a model on for no more rounds than the run had."""
        if dormancy is None:
            dormancy = DORMANCY if against.training is not None and len(self.rounds) >= DORMANCY else 0
        elif isinstance(dormancy, bool) or not isinstance(dormancy, int) or dormancy < 0:
            raise UserError(f"dormancy must be a number of rounds from 0 on, not {dormancy!r}")
        elif dormancy and against.training is None:
            raise UserError("how clients train is not known, so the model cannot be trained on: say it with training=")
        return Extent(against.truths, against.training, dormancy)

    def _comparison(self, retrain: int, training: FedAvg | None, reference: References | None) -> Comparison:
        """Return the retrained models: those that are given, made now, or were made earlier."""
        assert self.request is not None  # a training run is not compared
        run = Answered(self.outcome, self.request, self.seed)
        known = run.training(training)
        if reference is not None:
            given: list[Any] = list(reference) if isinstance(reference, list | tuple) else [reference]
            if not 1 <= len(given) <= len(PLACES):
                raise UserError(f"reference takes one retrained model, or a list of two, not {len(given)}")
            return run.comparison([_as_place(one) for one in given], known)
        notes = (UNKNOWN,) if retrain and known is None and run.ridge is None else ()
        if notes:
            known = FedAvg()
            warnings.warn(UNKNOWN, stacklevel=3)
        made = [self._retrained(run, known, number) for number in range(retrain)]
        return dataclasses.replace(run.comparison([*made, *run.earlier(retrain)], known), notes=notes)

    def _retrained(self, run: Answered, training: FedAvg | None, number: int) -> Place:
        """Retrain, and make the summary, which marks the run of the retrained model as finished."""
        outcome = run.retrain(training, number)
        facts = retraining_facts(self.facts, outcome.place)
        Result(outcome, self.request, retraining_seed(self.seed, number), facts).summary()
        return outcome.place


def began(federation: Federation, w0: Model) -> Start:
    """Return the start of a run, on the federation's device, from a model in any accepted form."""
    if not isinstance(federation, Federation):
        raise UserError(
            f"federation must be a Federation, such as simulate() returns, not a {type(federation).__name__}"
        )
    start = start_from(federation.layout, _as_place(w0))
    return dataclasses.replace(start, w=start.w.to(federation.device))


def _as_place(model: Any) -> Any:
    """Return the finished run of a Result; any other form of a model as it is."""
    if not isinstance(model, Result):
        return model
    model.summary()
    return model.place


def _path(run: Any) -> Path:
    if not isinstance(run, str | os.PathLike):
        raise UserError(f"run must be the path of a run directory, or a Result, not a {type(run).__name__}")
    return Path(run)
