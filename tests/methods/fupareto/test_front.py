"""FUPareto on quadratics ½‖w - c‖², whose Pareto set is known: the convex hull of the centres c."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fupareto.methods.registry import find
from fupareto.pareto import Array
from pareto.wolfe import wolfe

from ..quadratics import Client, QuadraticFederation, quadratic, walk

DIMENSIONS, FORGET, RETAINED = 6, ("u1", "u2"), ("r1", "r2", "r3")
ROUNDING = 1e-5  # of models in float32
METHOD: dict[str, Any] = {"rounds": 30, "recovery_rounds": 0, "forgotten_loss": 0.0}


def run(seed: int, **options: Any) -> tuple[dict[str, Array], list[Any]]:
    """Return the centres by client, and the states of a run from a start outside their hull."""
    rng = np.random.default_rng(seed)
    centres = {name: rng.normal(size=DIMENSIONS) for name in (*FORGET, *RETAINED)}
    ones = [1.0] * DIMENSIONS
    clients: dict[str, Any] = {}
    for name, centre in centres.items():
        sample = quadratic(list(centre), ones)
        clients[name] = Client([sample], [sample]) if name in FORGET else sample
    w0 = torch.tensor(rng.normal(size=DIMENSIONS) * 4, dtype=torch.float32)
    method = find("fupareto:guard", {**METHOD, **options})
    return centres, walk(method, QuadraticFederation(DIMENSIONS, **clients), w0, FORGET)


def at(state: Any) -> Array:
    return np.asarray(state.w.double().numpy())


def distance(w: Array, centres: dict[str, Array]) -> float:
    """Return the distance of a model to the Pareto set, by an oracle that is not ours."""
    away = np.array(list(centres.values())) - w
    return float(np.linalg.norm(wolfe(away) @ away))


def steps(states: list[Any], phase: str) -> list[tuple[Array, Array]]:
    """Return the models before and after every step of a phase."""
    pairs = itertools.pairwise(states)
    return [(at(a), at(b)) for a, b in pairs if b.phase == phase and b.record["step"] is not None]


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([0.02, 0.1, 0.5]), st.sampled_from(["fall", "follow"]))
def test_an_accepted_improvement_lowers_every_objective_and_the_distance_to_the_front(
    seed: int, lr: float, rates: str
) -> None:
    centres, states = run(seed, lr=lr, rates=rates)
    improved = steps(states, "improve")
    assert improved
    assert steps(states, "improve")[0][0] == pytest.approx(at(states[0]))
    for before, after in improved:
        for name, centre in centres.items():
            assert np.linalg.norm(after - centre) < np.linalg.norm(before - centre), name
        nearer, further = distance(after, centres), distance(before, centres)
        assert nearer < further or further < 1e-3  # on the set itself there is no nearer


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_an_expansion_leaves_the_front_at_right_angles_to_the_retained_gradients(seed: int) -> None:
    centres, states = run(seed, lr=0.3, rates="fall", expansion_harm=None)
    for before, after in steps(states, "expand"):
        step = after - before
        length = float(np.linalg.norm(step))
        for name in RETAINED:
            gradient = before - centres[name]
            assert abs(step @ gradient) <= (1e-4 * length + ROUNDING) * np.linalg.norm(gradient)
            risen = np.linalg.norm(after - centres[name]) ** 2 / 2 - np.linalg.norm(gradient) ** 2 / 2
            assert risen == pytest.approx(length**2 / 2, rel=1e-3, abs=ROUNDING * float(np.linalg.norm(gradient)))
        lowered = [
            np.linalg.norm(before - centres[name]) ** 2 - np.linalg.norm(after - centres[name]) ** 2 for name in FORGET
        ]
        assert sum(lowered) > 0  # towards the forget clients' centres


def test_both_phases_occur_and_the_front_is_reached() -> None:
    """The properties above are not empty: runs improve up to the front, then expand from it.

    Without guidance: with it, improvement ends where the angle of the losses cannot fall together with all of them.
    """
    reached, expanded = 0, 0
    for seed in range(5):
        centres, states = run(seed, lr=0.3, rates="fall", expansion_harm=None, guidance="off")
        first = next((k for k, state in enumerate(states) if state.phase == "expand"), None)
        if first is not None:
            start = distance(at(states[0]), centres)
            reached += distance(at(states[first - 1]), centres) < 0.1 * start
            expanded += bool(steps(states, "expand"))
    assert reached >= 3
    assert expanded >= 3


def test_it_stops_where_nothing_is_left_after_the_projection() -> None:
    """In one dimension every forget gradient lies in the span of a retained one: it stalls, and the stage ends."""
    clients: dict[str, Any] = {"r1": quadratic([0.0], [1.0])}
    clients["u1"] = Client([quadratic([1.0], [1.0])], [quadratic([1.0], [1.0])])
    method = find("fupareto:guard", {**METHOD, "rounds": 500, "lr": 0.1})
    states = walk(method, QuadraticFederation(1, **clients), torch.tensor([0.5]), ["u1"])
    assert states[-1].done
    assert len(states) < 60
    assert 0.0 <= float(states[-1].w) <= 1.0
