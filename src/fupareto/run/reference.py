"""Retrained models that an audit compares a run with: those that are given, made earlier, or trained now."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fupareto.audit.assemble import Truth
from fupareto.errors import UserError
from fupareto.federation.request import Request
from fupareto.methods.fedavg import FedAvg
from fupareto.methods.retrain import Retrain
from fupareto.methods.ridge import Ridge
from fupareto.randomness import derive
from fupareto.run import execute
from fupareto.run.directory import Run
from fupareto.run.execute import Settings
from fupareto.run.in_memory import MemoryRun
from fupareto.run.loop import Outcome
from fupareto.run.start import Place, Start, kept_model, ridge_of, start_from, training_of
from fupareto.vocabulary import COST, RETRAINED, SECOND, retrains

PLACES = (RETRAINED, SECOND)  # directories of retrained models in a run, the second of another seed
UNKNOWN = (
    f"How the initial model was trained is not known: retrained with FedAvg's defaults, {FedAvg()}. Pass the settings "
    "of its training as training=FedAvg(...)."
)


@dataclass(frozen=True)
class Comparison:
    """What the audit compares a run with.

    Attributes:
        truths: Retrained models.
        training: How clients train; None where that is not known.
        notes: Remarks for the audit.
    """

    truths: tuple[Truth, ...] = ()
    training: FedAvg | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answered:
    """A run that answered a request, as far as retrained models depend on it.

    Attributes:
        outcome: Federation, models and rounds of the run.
        request: What was forgotten.
        seed: Seed of all random choices.
    """

    outcome: Outcome
    request: Request
    seed: int

    def training(self, given: FedAvg | None) -> FedAvg | None:
        """Return how the initial model was trained, as it is given or as the run says; None where it does not."""
        if given is not None and not isinstance(given, FedAvg):
            raise UserError(f"training must be FedAvg(...), not a {type(given).__name__}")
        return given or training_of(self.outcome.place)

    def earlier(self, first: int) -> list[Run]:
        """Return the retrained models that the run directory has already, from number ``first`` on."""
        found: list[Run] = []
        for name in PLACES[first:]:
            path = None if self.outcome.place.path is None else self.outcome.place.path / name
            if path is None or not (Run.begun(path) and Run.open(path).finished):
                break
            found.append(Run.open(path))
        return found

    def comparison(self, references: Sequence[Any], training: FedAvg | None) -> Comparison:
        """Return the comparison with retrained models.

        Args:
            references: Finished runs of retrained models, or models in any form that a run starts from.
            training: How clients train, where it is known; otherwise the first reference says it, if it can.
        """
        found = [self._given(one, training) for one in references]
        truths = tuple(truth for truth, _ in found)
        return Comparison(truths, found[0][1] if found else training)

    def _given(self, reference: Any, training: FedAvg | None) -> tuple[Truth, FedAvg | None]:
        """Return a given model, or that of a given run, and how clients train."""
        layout, device = self.outcome.federation.layout, self.outcome.federation.device
        if isinstance(reference, str | os.PathLike) and Path(reference).is_dir():
            reference = Run.open(Path(reference))
        if not isinstance(reference, Run | MemoryRun):
            w = start_from(layout, reference, "reference").w
            return Truth(w.to(device), dict.fromkeys(COST)), training
        w = kept_model(layout, reference).to(device)
        self._check(reference)
        method = reference.config.get("method", {})
        known = {f.name: method[f.name] for f in fields(FedAvg) if f.name in method}  # None is left out
        own = FedAvg(**known) if method.get("name") == Retrain.name else None
        return Truth(w, reference.summary["cost"]), training or own or training_of(reference)

    def _check(self, place: Place) -> None:
        """Refuse a reference that was trained on the forgotten data."""
        where = place.path or "the reference"
        if place.trains:
            if self.request.partial or set(self.outcome.sides[0]) & set(place.summary["clients"]):
                raise UserError(f"{where} was trained on the forgotten data; the reference must be a retrained model")
            return
        if not retrains(place.config.get("method")):
            raise UserError(f'{where} is not a run of method "retrain" (or "ridge" with anew), so it is no reference')
        if Request.from_json(place.request) != self.request:
            raise UserError(f"{where} was retrained for another request; the reference must be for the same one")

    @property
    def ridge(self) -> Ridge | None:
        """The ridge regression that made the initial model; None for any other training."""
        return ridge_of(self.outcome.place)

    def retrain(self, training: FedAvg | None, number: int) -> Outcome:
        """Train a new model without the forgotten data; in a run directory, into its ``retrained``, or a second one.

        Args:
            training: How the initial model was trained; not needed for a ridge regression.
            number: Which retrained model it is, 0 or 1.
        """
        place, w0 = self.outcome.place, self.outcome.model("initial")
        if w0 is None:
            raise UserError("the run has no model of stage 'initial', with which a retrained one is compared")
        ridge, seed = self.ridge, retraining_seed(self.seed, number)
        method = replace(ridge, anew=True) if ridge else Retrain(**asdict(training or FedAvg()))
        config = {
            **{key: value for key, value in place.config.items() if key in ("kind", "seed", "versions")},
            "method": {"name": method.name, **asdict(method)},
            **({"training": asdict(training)} if training else {}),
            **({"seed": seed} if number else {}),
        }
        out = None if place.path is None else place.path / PLACES[number]
        settings = Settings(seed, out, resume=True, measure_every=10, config=config)
        return execute.answer(self.outcome.federation, Start(w0), self.request, method, settings)


def count_of(retrain: Any) -> int:
    """Return how many models to retrain; True is one."""
    if not isinstance(retrain, int) or not 0 <= retrain <= len(PLACES):
        raise UserError(f"retrain takes True, or a number of models from 0 to {len(PLACES)}, not {retrain!r}")
    return int(retrain)


def retraining_seed(seed: int, number: int) -> int:
    """Return the seed of a run's first (0) or second (1) retrained model."""
    return derive(seed, "retrained", number) if number else seed


def retraining_facts(facts: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return what the summary of a retrained model says unmeasured, from the facts of the run."""
    own = ("created", "stored")  # of the run itself
    return {**{key: value for key, value in facts.items() if key not in own}, "method": place.config["method"]["name"]}
