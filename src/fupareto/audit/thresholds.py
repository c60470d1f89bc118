"""Thresholds: the limits that an audit's checks are judged by, and what each check then claims."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fupareto.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Thresholds:
    """Limits of the checks, each between 0 and 1.

    Attributes:
        asr: Attack success rate of the worst forget client; 0.05 is half of guessing among ten classes.
        forget_gap: Accuracy on the forgotten data above that of a retrained model.
        r_acc_loss: Mean accuracy that the retained clients may lose.
        client_loss: Accuracy that a single retained client may lose.
        leak: Distance of a membership attack's AUC from 0.5; above it only, for an attack that is trained.
        relearning: Rounds until the forgotten data are relearnt, as a share of a retrained model's.
        divergence: Bits between outputs on the forgotten data and a retrained model's.
    """

    asr: float = 0.05
    forget_gap: float = 0.05
    r_acc_loss: float = 0.02
    client_loss: float = 0.10
    leak: float = 0.10
    relearning: float = 0.5
    divergence: float = 0.10

    def __post_init__(self) -> None:
        for key, value in dataclasses.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise UserError(f"the threshold {key} must lie between 0 and 1, not {value!r}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Thresholds":
        """Read thresholds by name."""
        known = [f.name for f in dataclasses.fields(cls)]
        if unknown := [key for key in options if key not in known]:
            hint = did_you_mean(unknown[0], known)
            raise UserError(f"the threshold {unknown[0]!r} is unknown; there are {', '.join(known)}{hint}")
        return cls(**options)

    def claim(self, name: str) -> str:
        """Return what the check ``name`` tests against these limits."""
        return {
            "forgotten": f"the mark of every forget client works in at most {share(self.asr)} of all tries",
            "unknown": f"accuracy on the forgotten data is at most {points(self.forget_gap)} above a retrained model's",
            "useful": f"the retained clients lost at most {points(self.r_acc_loss)} of mean accuracy",
            "exclusive": f"no retained client lost more than {points(self.client_loss)} of accuracy",
            "private": f"no membership attack has an AUC further than {self.leak:g} from chance (0.5)",
            "alike": "outputs on the forgotten data are within "
            f"{self.divergence:g} bits of a retrained model's, in the mean",
            "removed": "relearning the forgotten data takes at least "
            f"{self.relearning:g} times a retrained model's rounds",
            "unseen": "models that forgot are told from models that never saw the clients with an AUC no further than "
            f"{self.leak:g} from chance (0.5)",
        }[name]


def points(value: float) -> str:
    """Return a difference of shares in percentage points."""
    return f"{100 * value:g} point{'' if value == 0.01 else 's'}"


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return "an unknown share" if value is None else f"{100 * value:.1f}%"
