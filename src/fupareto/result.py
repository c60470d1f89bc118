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
from fupareto.audit.assemble import Extent, Truth
from fupareto.audit.attacks.shadowed import Shadowed
from fupareto.audit.checks import Thresholds
from fupareto.audit.dormancy import ROUNDS as DORMANCY
from fupareto.audit.summary import summarise
from fupareto.audit.training import Progress, no_progress
from fupareto.comparison import COST, PLACES, Comparison, count_of, joined, limits_of, refuse_certified, retraining_seed
from fupareto.errors import UserError
from fupareto.federation import Federation, Request
from fupareto.methods import FedAvg
from fupareto.methods.retrain import Retrain
from fupareto.report import render
from fupareto.run import execute
from fupareto.run.directory import Run
from fupareto.run.execute import Settings
from fupareto.run.loop import Outcome
from fupareto.run.start import Place, Start, kept_model, start_from, training_of
from fupareto.tasks import task_of
from fupareto.vocabulary import STAGES

Model = Union[Tensor, nn.Module, Mapping[str, Tensor], str, "os.PathLike[str]", Run, Start, "Result"]
References = Model | Sequence[Model]  # one retrained model, or two
FACTS = ("name", "method", "dataset", "model", "seed", "versions", "created", "task", "base")


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
        if "task" in summary:
            federation = federation.judged(task_of(summary["task"]))
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
            retrain: Compare with a model that is retrained without the forgotten data, by the training's settings.
                2 makes another one from another seed, which says how much retrained models differ.
            training: The settings of the training, where the run does not know them.
            reference: A model that was retrained already, in any form that ``w0`` of ``unlearn`` may have, or a list of
                two.
            thresholds: Where a number is good enough, such as ``{"asr": 0.02}``.
            dormancy: Rounds for which the retained clients train the model on, to see what comes back; 0 for none. By
                default 40, if the run had as many and how clients train is known.
        """
        limits = limits_of(thresholds)
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
        progress: Progress = no_progress,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Measure and audit the models again without writing anything.

        Args:
            reference: Retrained model to compare with.
            shadowed: Shadow models, for the attacks of tiers 2 and 3.
            thresholds: Limits of the checks.

        Returns:
            The summary, and the audit; None in its place for a training run.
        """
        summary = self._measured()
        if self.request is None:
            return summary, None
        extent = self._extent(self._comparison(0, None, reference), dormancy)
        extent = dataclasses.replace(extent, shadowed=shadowed)
        return self._attacked(summary, extent, limits_of(thresholds), (), progress)

    def report(self, path: str | Path) -> Path:
        """Write the HTML report, with the audit if there is one.

        Args:
            path: File to write.

        Returns:
            The path of the file.
        """
        page = render(self.summary(), self.rounds, self.place.config, self.place.audit)
        try:
            Path(path).write_text(page, encoding="utf-8")
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
        return {"format": 1, **self.facts, "created": self.facts.get("created", created), **numbers}

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
        if training is not None and not isinstance(training, FedAvg):
            raise UserError(f"training must be FedAvg(...), not a {type(training).__name__}")
        known = training or training_of(self.place)
        if reference is not None:
            given: list[Any] = list(reference) if isinstance(reference, list | tuple) else [reference]
            if not 1 <= len(given) <= len(PLACES):
                raise UserError(f"reference takes one retrained model, or a list of two, not {len(given)}")
            return joined([self._given(one, known) for one in given])
        made = [self._retrained(known, number) for number in range(retrain)]
        for name in PLACES[retrain:]:
            earlier = None if self.place.path is None else self.place.path / name
            if earlier is None or not (Run.begun(earlier) and Run.open(earlier).finished):
                break
            made.append(self._given(Run.open(earlier), known))
        return joined(made) if made else Comparison(training=known)

    def _given(self, reference: Model, training: FedAvg | None) -> Comparison:
        """Return the comparison with a given model, or with the run of a retrained one."""
        place, layout = _place_of(reference), self.outcome.federation.layout
        device = self.outcome.federation.device
        if place is None:
            w = start_from(layout, reference, "reference").w
            return Comparison((Truth(w.to(device), dict.fromkeys(COST)),), training)
        if isinstance(reference, Result):
            reference.summary()
        w = kept_model(layout, place).to(device)
        self._check_reference(place)
        method = place.config.get("method", {})
        known = {f.name: method[f.name] for f in dataclasses.fields(FedAvg) if f.name in method}
        own = FedAvg(**known) if not place.trains else None
        return Comparison((Truth(w, place.summary["cost"]),), training or own or training_of(place))

    def _check_reference(self, place: Place) -> None:
        """Refuse a reference that was trained on the forgotten data."""
        where = place.path or "the reference"
        if place.trains:
            learnt = set(self.outcome.sides[0]) & set(place.summary["clients"])
            if learnt or (self.request and self.request.partial):
                raise UserError(f"{where} was trained on the forgotten data; the reference must be a retrained model")
            return
        if place.config.get("method", {}).get("name") != Retrain.name:
            raise UserError(f'{where} is not a run of method "retrain", so it cannot be the reference')
        if Request.from_json(place.request) != self.request:
            raise UserError(f"{where} was retrained for another request; the reference must be for the same one")

    def _retrained(self, training: FedAvg | None, number: int) -> Comparison:
        """Train a new model without the forgotten data; in a run directory, into its ``retrained``, or a second one."""
        notes: tuple[str, ...] = ()
        if training is None:
            training = FedAvg()
            notes = (
                f"How the initial model was trained is not known: retrained with FedAvg's defaults, {training}. "
                "Pass the settings of its training as training=FedAvg(...).",
            )
            if not number:
                warnings.warn(notes[0], stacklevel=5)
        method = Retrain(**dataclasses.asdict(training))
        w0, path = self.outcome.model("initial"), self.place.path
        if w0 is None or self.request is None:
            raise UserError("the run has no model of stage 'initial', with which a retrained one is compared")
        label = {"name": method.name, **dataclasses.asdict(method)}
        kept = {key: value for key, value in self.place.config.items() if key in ("kind", "seed", "versions")}
        config = {**kept, "method": label, "training": dataclasses.asdict(training)}
        seed = retraining_seed(self.seed, number)
        config = {**config, "seed": seed} if number else config
        settings = Settings(seed, path and path / PLACES[number], True, 10, config=config)
        facts = {key: self.facts[key] for key in FACTS if key != "created" and key in self.facts}
        facts["method"] = method.name
        outcome = execute.answer(self.outcome.federation, Start(w0), self.request, method, settings)
        made = Result(outcome, self.request, seed, facts)
        return dataclasses.replace(self._given(made, training), notes=notes)


def began(federation: Federation, w0: Model) -> Start:
    """Return the start of a run, on the federation's device, from a model in any accepted form."""
    if not isinstance(federation, Federation):
        raise UserError(
            f"federation must be a Federation, such as simulate() returns, not a {type(federation).__name__}"
        )
    if isinstance(w0, Result):
        w0.summary()
    start = start_from(federation.layout, w0.place if isinstance(w0, Result) else w0)
    return dataclasses.replace(start, w=start.w.to(federation.device))


def _place_of(reference: Model) -> Place | None:
    """Return the run of a reference; None where it is a model without one."""
    if isinstance(reference, Result):
        return reference.place
    if isinstance(reference, str | os.PathLike) and Path(reference).is_dir():
        return Run.open(Path(reference))
    return reference if isinstance(reference, Run) else None


def _path(run: Any) -> Path:
    if not isinstance(run, str | os.PathLike):
        raise UserError(f"run must be the path of a run directory, or a Result, not a {type(run).__name__}")
    return Path(run)
