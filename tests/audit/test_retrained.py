"""Distance to a retrained model, against an independent formula and where it is known."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax

from federation import worlds
from fupareto import parameters
from fupareto.audit import retrained
from fupareto.federation import SimulatedFederation
from fupareto.tasks.base import divergences


def divergence(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(divergences(a, b).mean())


LOGITS = arrays(np.float64, (5, 4), elements=st.floats(-30, 30))


@given(LOGITS, LOGITS)
def test_divergence_is_scipys(a: np.ndarray, b: np.ndarray) -> None:
    expected = np.mean(jensenshannon(softmax(a, 1), softmax(b, 1), base=2, axis=1) ** 2)
    found = divergence(torch.from_numpy(a), torch.from_numpy(b))
    assert found == pytest.approx(expected, abs=1e-7)
    assert found == pytest.approx(divergence(torch.from_numpy(b), torch.from_numpy(a)), abs=1e-12)


def test_divergence_at_its_ends() -> None:
    a = torch.tensor([[1000.0, 0.0], [1000.0, 0.0]], dtype=torch.float64)
    assert divergence(a, a) == 0.0
    assert divergence(a, a.flip(1)) == pytest.approx(1.0)


def test_distance_to_itself_is_nothing_and_to_another_model_is_counted() -> None:
    federation = SimulatedFederation(worlds.plain(), worlds.clients())
    w = parameters.read(worlds.plain())
    measured = {"asr": None, "forget_acc": 0.5, "r_acc": 0.75}
    same = retrained.distance(federation, w, w, measured, measured, worlds.FORGET)
    assert same == {"asr": None, "forget_acc": 0, "r_acc": 0, "divergence": 0, "divergence_error": 0} | {
        "disagreement": 0,
        "distance": 0,
        "missing": [],
    }
    other = retrained.distance(
        federation, -w, w, measured, {"asr": 0.1, "forget_acc": 0.75, "r_acc": 0.5}, worlds.FORGET
    )
    assert (other["asr"], other["forget_acc"], other["r_acc"]) == (None, -0.25, 0.25)
    assert other["distance"] == pytest.approx(2 * float(w.norm()), rel=1e-6)
    module = worlds.plain()
    shares = []
    for i in worlds.FORGET:
        x, _ = worlds.clients()[i]["train"]
        answers = []
        for vector in (-w, w):
            parameters.write(module, vector)
            answers.append(module(x).argmax(1))
        shares.append(float((answers[0] != answers[1]).float().mean()))
    assert other["disagreement"] == pytest.approx(np.mean(shares))
    assert other["disagreement"] > 0
