"""What an audit compares a run with: retrained models, their seeds and places, and limits."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fupareto.audit.assemble import Truth
from fupareto.audit.checks import Thresholds
from fupareto.errors import UserError
from fupareto.methods import FedAvg
from fupareto.randomness import derive
from fupareto.vocabulary import RETRAINED, SECOND

COST = ("rounds", "seconds", "bytes_up", "bytes_down")
PLACES = (RETRAINED, SECOND)  # of retrained models in a run, the second of another seed


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What the audit compares a run with: retrained models, how clients train, and remarks on both."""

    truths: tuple[Truth, ...] = ()
    training: FedAvg | None = None
    notes: tuple[str, ...] = ()


def joined(found: Sequence[Comparison]) -> Comparison:
    """Return several comparisons as one."""
    truths = tuple(truth for one in found for truth in one.truths)
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    return Comparison(truths, found[0].training, notes)


def count_of(retrain: Any) -> int:
    """Return how many models to retrain; True is one."""
    if not isinstance(retrain, int) or not 0 <= retrain <= len(PLACES):
        raise UserError(f"retrain takes True, or a number of models from 0 to {len(PLACES)}, not {retrain!r}")
    return int(retrain)


def retraining_seed(seed: int, number: int) -> int:
    """Return the seed of a run's first (0) or second (1) retrained model."""
    return derive(seed, "retrained", number) if number else seed


def limits_of(thresholds: Thresholds | Mapping[str, float] | None) -> Thresholds | None:
    """Return thresholds that are given as such or by name."""
    if thresholds is None or isinstance(thresholds, Thresholds):
        return thresholds
    if not isinstance(thresholds, Mapping):
        raise UserError(
            f'thresholds must be Thresholds(...) or numbers by name, such as {{"asr": 0.02}}, not a '
            f"{type(thresholds).__name__}"
        )
    return Thresholds.of(thresholds)


def refuse_certified(path: Path) -> None:
    """Refuse to overwrite the results of a run that has a certificate."""
    if (path / "certificate.json").is_file():
        raise UserError(
            f"{path} has a certificate, which would not match new results; check it with `fupareto verify`, "
            "or move certificate.json elsewhere first"
        )
