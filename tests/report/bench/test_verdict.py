"""Verdicts beside the paper: the rule, worked out by hand and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fupareto.report.bench.verdict import ASR, CHANGE, VERDICTS, Model, model, verdict

W0 = (0.9, 0.8)  # ASR and R-Acc of both initial models
share = st.floats(0, 1)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ((0.05, 0.84), (0.0, 0.80), "reproduced"),  # at both tolerances
        ((0.0, 0.80), (0.051, 0.80), "better"),
        ((0.0, 0.86), (0.0, 0.80), "better"),
        ((0.06, 0.80), (0.0, 0.80), "worse"),
        ((0.0, 0.70), (0.0, 0.75), "worse"),  # both cost accuracy
        ((0.0, 0.75), (0.0, 0.80), "contradicted"),  # only ours costs accuracy
        ((0.0, 0.80), (0.0, 0.57), "contradicted"),  # only theirs does
        ((0.6, 0.80), (0.0, 0.80), "contradicted"),  # only theirs has forgotten
        ((0.0, 0.90), (0.1, 0.95), "contradicted"),  # better and worse
        ((0.45, 0.80), (0.44, 0.80), "reproduced"),  # on two sides of a half, and within the tolerance
        ((0.0, 0.755), (0.0, 0.765), "reproduced"),
    ],
)
def test_the_rule(ours: tuple[float, float], theirs: tuple[float, float], said: str) -> None:
    assert verdict(Model(*ours, *W0), Model(*theirs, *W0)) == said


def test_a_w0_that_knows_too_little_is_not_comparable() -> None:
    theirs = Model(0.0, 0.8, *W0)
    assert verdict(Model(0.0, 0.8, 0.44, 0.8), theirs) == "not comparable"
    assert verdict(Model(0.0, 0.4, 0.9, 0.39), theirs) == "not comparable"
    assert verdict(Model(0.0, 0.4, 0.45, 0.40), theirs) == "reproduced"


@given(share, share, share, share)
def test_every_pair_has_one_verdict_and_its_mirror(a: float, b: float, c: float, d: float) -> None:
    """Exchanging the sides exchanges better and worse, and changes nothing else."""
    ours, theirs = Model(a, b, *W0), Model(c, d, *W0)
    found, mirrored = verdict(ours, theirs), verdict(theirs, ours)
    assert found in VERDICTS[:4]
    assert mirrored == {"better": "worse", "worse": "better"}.get(found, found)
    assert verdict(ours, ours) == "reproduced"
    if abs(a - c) <= ASR and abs(b - d) <= CHANGE:
        assert found == "reproduced"


def test_what_is_unknown_has_no_verdict() -> None:
    assert model({"asr": None, "r_acc": 0.5}, {"asr": 0.9, "r_acc": 0.8}) is None
    assert model({"asr": 0.1, "r_acc": 0.5}, {"asr": 0.9, "r_acc": 0.8}) == Model(0.1, 0.5, 0.9, 0.8)
