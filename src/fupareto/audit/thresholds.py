"""Thresholds: the limits that an audit's checks are judged by, and what each check then claims."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fupareto.errors import UserError, did_you_mean

MOST = {"spread": 10}  # thresholds that may be above 1


@dataclass(frozen=True)
class Thresholds:
    """Limits of the checks, each between 0 and 1; ``spread`` between 0 and 10.

    Attributes:
        asr: Attack success rate of the worst forget client, now and later, or 0.03 above a retrained model's where
            that is larger; 0.05 is half of guessing among ten classes.
        forget_gap: Accuracy on the forgotten data above that of a retrained model.
        r_acc_loss: Mean accuracy that the retained clients may lose.
        client_loss: Accuracy that a single retained client may lose.
        leak: Distance of a membership attack's AUC from the same attack's on a retrained model, or from 0.5 where
            there is none; above it only, for an attack that is trained.
        relearning: Way from the initial to the retrained model that must be gone in slow relearning.
        spread: Divergence of outputs from a retrained model's, over that between two retrained models.
    """

    asr: float = 0.05
    forget_gap: float = 0.05
    r_acc_loss: float = 0.02
    client_loss: float = 0.10
    leak: float = 0.10
    relearning: float = 0.7
    spread: float = 1.5

    def __post_init__(self) -> None:
        for key, value in dataclasses.asdict(self).items():
            most = MOST.get(key, 1)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
                raise UserError(f"the threshold {key} must lie between 0 and {most}, not {value!r}")

    @classmethod
    def of(cls, options: "Thresholds | Mapping[str, Any] | None") -> "Thresholds":
        """Return thresholds that are given as such, by name, or not at all."""
        if options is None or isinstance(options, Thresholds):
            return options or cls()
        if not isinstance(options, Mapping):
            raise UserError(
                f'thresholds must be Thresholds(...) or numbers by name, such as {{"asr": 0.02}}, not a '
                f"{type(options).__name__}"
            )
        known = [f.name for f in dataclasses.fields(cls)]
        if unknown := [key for key in options if key not in known]:
            hint = did_you_mean(unknown[0], known)
            raise UserError(f"the threshold {unknown[0]!r} is unknown; there are {', '.join(known)}{hint}")
        return cls(**options)

    def claim(self, name: str, limit: float | None = None, rounds: int | None = None) -> str:
        """Return what the check ``name`` tests against these limits.

        Args:
            name: The check; "against" is "private" where there is a retrained model to compare with.
            limit: The limit where it is not the threshold itself but a retrained model's value.
            rounds: Further rounds of training, for the check "lasting".
        """
        asr = share(self.asr if limit is None else limit)
        further = "after further rounds" if rounds is None else f"within {further_rounds(rounds)}"
        later = f"{further} of training among the retained clients"
        return {
            "forgotten": f"the mark of every forget client works in at most {asr} of all tries",
            "unknown": f"accuracy on the forgotten data is at most {points(self.forget_gap)} above a retrained model's",
            "lasting": f"{later}, the mark of every forget client works in at most {asr} of all tries",
            "lasting-unknown": f"{later}, accuracy on the forgotten data is at most {points(self.forget_gap)} above a "
            "retrained model's",
            "useful": f"the retained clients lost at most {points(self.r_acc_loss)} of mean accuracy",
            "exclusive": f"no retained client lost more than {points(self.client_loss)} of accuracy",
            "private": f"no membership attack has an AUC further than {self.leak:g} from chance (0.5)",
            "against": f"no membership attack has an AUC further than {self.leak:g} from its AUC on a retrained model",
            "alike": f"outputs on the forgotten data are at most {self.spread:g} times as far from a retrained model's "
            "as those of two retrained models are from each other",
            "removed": f"in slow relearning of the forgotten data, at least {100 * self.relearning:g}% of the way from "
            "the initial to a retrained model is gone",
            "unseen": "models that forgot are told from models that never saw the clients with an AUC no further than "
            f"{self.leak:g} from chance (0.5)",
        }[name]


def points(value: float) -> str:
    """Return a difference of shares in percentage points."""
    return f"{100 * value:g} point{'' if value == 0.01 else 's'}"


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return "an unknown share" if value is None else f"{100 * value:.1f}%"


def further_rounds(count: int) -> str:
    """Return a number of further rounds in words."""
    return f"{count} further round{'' if count == 1 else 's'}"
