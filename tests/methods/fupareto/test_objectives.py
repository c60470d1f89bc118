"""Answers in client space: live and dead gradients, lengths, directions, allowances."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from fupareto.federation.collected import Gradients
from fupareto.methods.fupareto.objectives import Objectives

IDS = ("a", "b", "c")


def objectives(
    gradients: Sequence[Sequence[float]],
    losses: Sequence[float] | None = None,
    batches: Sequence[float] | None = None,
    equal: bool = True,
    extra: Tensor | None = None,
) -> Objectives:
    m = len(gradients)
    answer = Gradients(
        IDS[:m],
        np.array(losses or [1.0] * m),
        torch.tensor(gradients, dtype=torch.float32),
        np.array(batches or [1.0] * m),
    )
    return Objectives.of(answer, equal, extra)


# In client space ---------------------------------------------------------------------------------------------------


def test_live_gradients_come_to_one_length_and_dead_ones_count_for_nothing() -> None:
    found = objectives([[3.0, 4.0], [5e-7, 0.0], [0.0, 1.0]])
    assert found.live.tolist() == [True, False, True]
    assert found.scale == pytest.approx([3 / 5, 0.0, 3.0])
    assert found.of_clients(IDS) == [0, 1, 2]
    assert found.of_clients(IDS, live=True) == [0, 2]
    assert found.of_clients(["c", "unknown"]) == [2]
    assert objectives([[3.0, 4.0], [5e-7, 0.0]], equal=False).scale.tolist() == [1.0, 0.0]


def test_extra_rows_follow_the_clients_and_are_nobodys_objective() -> None:
    found = objectives([[3.0, 4.0], [0.0, 1.0]], extra=torch.tensor([[7.0, 0.0], [0.0, 7.0]]))
    assert found.extra == [2, 3]
    assert found.of_clients(IDS, live=True) == [0, 1]
    assert found.scale == pytest.approx([3 / 5, 3.0, 0.0, 0.0])
    assert list(found.cosines(np.array([0.0, 1.0, 0.0, 0.0]))) == ["a", "b"]
    empty = objectives([[3.0, 4.0]], extra=torch.empty(0, 2))
    assert empty.extra == []


def test_mean_length_is_of_the_scaled_gradients() -> None:
    found = objectives([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    assert found.mean_length([0, 1]) == pytest.approx(np.hypot(1.5, 1.5))
    assert found.mean_length([]) == 0.0


def test_descent_comes_at_the_length_wanted() -> None:
    found = objectives([[2.0, 0.0], [0.0, 2.0]])
    hull = np.eye(2)
    assert found.descent(hull, None) == pytest.approx([0.5, 0.5])
    assert found.descent(hull, 3.0) == pytest.approx([3 / np.sqrt(8)] * 2)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_descent_is_none_where_nothing_descends(size: float) -> None:
    torn = objectives([[size, size], [-2 * size, -2 * size]])
    assert torn.descent(np.eye(2), None) is None
    assert torn.descent(np.eye(2), 1.0) is None
    assert torn.descent(np.empty((0, 2)), 1.0) is None
    assert torn.descent(np.zeros((1, 2)), 1.0) is None


def test_cosines_are_of_parameter_space() -> None:
    found = objectives([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    cosines = found.cosines(np.array([1.0, 0.0, -1.0]))  # d = (3, 2)
    assert cosines == pytest.approx({"a": 17 / (5 * np.sqrt(13)), "b": 0.0, "c": 4 / (2 * np.sqrt(13))})


def test_a_loss_below_its_goal_may_rise_up_to_it() -> None:
    answer = objectives([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [2e-4, 5e-4, 0.4]).answer
    found = Objectives.of(answer, True, None, dict.fromkeys(IDS[:2], 3e-4))
    assert found.allowance == pytest.approx([1e-4, 0.0, 1e-6])
    assert found.live.tolist() == [True, True, False]
    assert found.unfinished(IDS) == [1]
    assert found.forgotten(IDS[:1], 3e-4)
    assert not found.forgotten(IDS[:1])
    assert not found.forgotten(IDS[:2], 3e-4)
    assert not found.forgotten([*IDS[:1], "absent"], 3e-4)
