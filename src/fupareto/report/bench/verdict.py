"""Verdicts on a measured cell beside the paper's: reproduced, better, worse, contradicted or not comparable.

Two numbers of a cell are compared: its ASR, and how far its R-Acc lies from that of w0. Differences within ``ASR`` and
``CHANGE`` do not count. Every table and page takes its verdicts from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ASR = 0.05  # ASRs this far apart are the same
CHANGE = 0.04  # changes of R-Acc from w0 this far apart are the same
HALF = 0.5  # of what w0 knows: a model with a smaller ASR has forgotten; a w0 with less than the paper's is another

REPRODUCED = "reproduced"
BETTER = "better"
WORSE = "worse"
CONTRADICTED = "contradicted"
NOT_COMPARABLE = "not comparable"
VERDICTS = (REPRODUCED, BETTER, WORSE, CONTRADICTED, NOT_COMPARABLE)

RULE = (
    f"Reproduced: the ASR is within {ASR:.2f} of the paper's, and the change of R-Acc from w0 within {CHANGE:.2f}. "
    "Better or worse: at least one of the two differs by more, and neither is on the other side. Contradicted: one is "
    "better and the other worse; or the ASRs differ by more and only one of them has forgotten (an ASR below half of "
    "its w0's); or the changes differ by more and only one of them costs the retained clients accuracy (more than "
    f"{CHANGE:.2f}). Not comparable: w0 has less than half of the ASR or of the R-Acc of the paper's w0."
)


@dataclass(frozen=True)
class Model:
    """The two numbers of a model, with those of the w0 that it comes from, as fractions."""

    asr: float
    r_acc: float
    first_asr: float
    first_r_acc: float

    @property
    def change(self) -> float:
        """How far R-Acc lies from that of w0."""
        return self.r_acc - self.first_r_acc

    @property
    def forgets(self) -> bool:
        """Whether less than half of what w0 knew is left."""
        return self.asr < HALF * self.first_asr

    @property
    def costs(self) -> bool:
        """Whether the retained clients pay."""
        return self.change < -CHANGE - _ROUNDING


_ROUNDING = 1e-9  # differences of printed numbers are exact in the third decimal, and not in binary


def model(own: Mapping[str, float | None], first: Mapping[str, float | None]) -> Model | None:
    """Return a model from its measures and those of w0; None where one of them is unknown."""
    values = (own.get("asr"), own.get("r_acc"), first.get("asr"), first.get("r_acc"))
    known = [value for value in values if value is not None]
    return Model(*known) if len(known) == len(values) else None


def verdict(ours: Model, theirs: Model) -> str:
    """Return the verdict on our model beside the paper's."""
    if ours.first_asr < HALF * theirs.first_asr or ours.first_r_acc < HALF * theirs.first_r_acc:
        return NOT_COMPARABLE
    asr, change = _side(theirs.asr - ours.asr, ASR), _side(ours.change - theirs.change, CHANGE)
    opposite = (asr and ours.forgets != theirs.forgets) or (change and ours.costs != theirs.costs)
    if opposite or {asr, change} == {1, -1}:
        return CONTRADICTED
    return REPRODUCED if asr == change == 0 else BETTER if 1 in (asr, change) else WORSE


def _side(better_by: float, tolerance: float) -> int:
    """Return 1 for better, -1 for worse, and 0 within the tolerance."""
    return 0 if abs(better_by) <= tolerance + _ROUNDING else 1 if better_by > 0 else -1
