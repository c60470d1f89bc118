"""Rules for the base rate of the line searches, between rounds.

``follow``  the first search is so wide that the rate to start from does not matter; the rate is then that of the steps
            that clients accept (our addition)
``fall``    the rate decays with the rounds, as in the paper, and is halved after three rounds without a step
"""

from dataclasses import dataclass
from typing import ClassVar

from fupareto.pareto import trial_steps

WIDE = 10  # breadth of a search that finds the rate


@dataclass(frozen=True)
class Falling:
    """A rate that decays.

    Attributes:
        s: Breadth of the line search.
        decay: Factor of the rate, per round.
    """

    s: int
    decay: float

    def eta(self, rate: float, round_: int) -> float:
        """Return the rate of a round."""
        return rate * self.decay**round_

    def steps(self, eta: float, measured: bool) -> tuple[float, ...]:
        """Return the trial steps of an improvement; ``measured`` if an accepted step has set the rate."""
        return trial_steps(eta, self.s, enlarge=True)

    def after(self, rate: float, accepted: float, measured: bool, largest: bool) -> float:
        """Return the base rate after an accepted step; ``largest`` if an expansion accepted the largest step tried."""
        return rate

    def exhausted(self, rate: float, start: float, stalled: int) -> bool:
        """Return whether the rate has been halved so often that no step is to be expected."""
        return rate < start * 2.0**-6


@dataclass(frozen=True)
class Following(Falling):
    """A rate that follows the accepted steps; it does not decay."""

    patience: ClassVar[int] = 18  # rounds without a step after which none is to be expected

    def eta(self, rate: float, round_: int) -> float:
        """Return the rate as it is."""
        return rate

    def steps(self, eta: float, measured: bool) -> tuple[float, ...]:
        """Return the trial steps of an improvement; many until an accepted step has set the rate."""
        return trial_steps(eta, self.s if measured else max(self.s, WIDE), enlarge=True)

    def after(self, rate: float, accepted: float, measured: bool, largest: bool) -> float:
        """Return the first accepted step, later a larger one; double the rate if an expansion could have gone further.

        An expansion does not try steps larger than the rate.
        """
        if not measured or accepted > rate:
            return accepted
        return 2 * rate if largest else rate

    def exhausted(self, rate: float, start: float, stalled: int) -> bool:
        """Return whether there have been too many rounds without a step."""
        return stalled >= self.patience


RATES = {"follow": Following, "fall": Falling}
