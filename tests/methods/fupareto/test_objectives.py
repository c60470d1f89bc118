"""Answers in client space, and the line search against the plainest reimplementation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fupareto.federation.collected import Gradients, Missing
from fupareto.federation.questions import Answer, Failure, Losses, Question, TrialLosses
from fupareto.methods.fupareto.objectives import Objectives, Rule, Search, search
from fupareto.pareto import Array, trial_steps
from fupareto.tasks.losses import Loss

from ..quadratics import QuadraticFederation, linear, vector

IDS = ("a", "b", "c")
CE = Loss("ce")


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


def test_a_loss_below_enough_may_rise_up_to_it() -> None:
    answer = objectives([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [2e-4, 5e-4, 0.4]).answer
    found = Objectives.of(answer, True, None, dict.fromkeys(IDS[:2], 3e-4))
    assert found.slack == pytest.approx([1e-4, 0.0, 1e-6])
    assert found.live.tolist() == [True, True, False]
    assert found.unfinished(IDS) == [1]
    assert found.forgotten(IDS[:1], 3e-4)
    assert not found.forgotten(IDS[:1])
    assert not found.forgotten(IDS[:2], 3e-4)
    assert not found.forgotten([*IDS[:1], "absent"], 3e-4)
    tight = look(Table(np.array([[2.9e-4, 0.0, 0.0], [3.1e-4, 0.0, 0.0]])), found, [0.2, 0.1], beta=1e-9)
    assert tight.accepted == 0.2
    loose = look(Table(np.array([[3.1e-4, 0.0, 0.0], [2.9e-4, 0.0, 0.0]])), found, [0.2, 0.1], beta=1e-9)
    assert loose.accepted == 0.1


# Search ------------------------------------------------------------------------------------------------------------


class Table(QuadraticFederation):
    """Losses out of a table: one row per trial step, nan for a client that does not answer."""

    def __init__(self, table: Array) -> None:
        super().__init__(2, a=linear([1.0, 0.0]), b=linear([1.0, 0.0]), c=linear([1.0, 0.0]))
        self.table = table
        self.shown = 0
        self.objectives: Mapping[str, Loss] = {}

    def losses(
        self,
        w: Tensor,
        direction: Tensor,
        steps: Sequence[float],
        objectives: Mapping[str, Loss],
        missing: Missing,
        mode: str = "eval",
        seed: int = 0,
        limits: Sequence[Mapping[str, float]] | None = None,
    ) -> Iterator[Array]:
        self.objectives = objectives
        for row in self.table[:, [IDS.index(i) for i in objectives]]:
            self.shown += 1
            yield row


def look(
    federation: QuadraticFederation,
    found: Objectives,
    steps: Sequence[float],
    coefficients: Array | None = None,
    ids: Sequence[str] = IDS,
    rule: Literal["descent", "printed"] = "descent",
    beta: float = 0.25,
) -> Search:
    c = np.ones(len(found.gram)) if coefficients is None else coefficients
    w = vector(0.0, 0.0)
    return search(federation, w, found, c, steps, dict.fromkeys(ids, CE), Rule(beta, rule))


values = st.sampled_from([0.0, 0.5, 0.9, 0.95, 1.0, 1.0 + 5e-7, 1.1, 2.0, np.inf, np.nan])
tables = st.lists(st.tuples(values, values, values), min_size=5, max_size=5).map(lambda rows: np.array(rows))


@given(tables, st.sampled_from(["descent", "printed"]), st.integers(0, 2), st.sets(st.sampled_from(IDS), min_size=1))
def test_the_first_step_that_everybody_can_live_with(
    table: Array, rule: Literal["descent", "printed"], dead: int, asked: set[str]
) -> None:
    gradients = [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]
    gradients[dead] = [0.0, 0.0]
    batches, losses, coefficients = [1.0, 2.0, 4.0], [1.0, 1.0, 1.0], np.array([0.3, 0.2, 0.1])
    steps, beta = trial_steps(0.4, 2, enlarge=True), 0.25
    ids = [i for i in IDS if i in asked]
    found = look(Table(table), objectives(gradients, losses, batches), steps, coefficients, ids, rule, beta)

    d = sum(c * np.array(g) for c, g in zip(coefficients, gradients, strict=True))
    expected, tried, changes = None, [], []
    for step, row in zip(steps, table, strict=True):
        happy, change, heard = True, 0.0, 0
        for i in ids:
            k = IDS.index(i)
            if np.isnan(row[k]):
                continue
            heard += 1
            change += row[k] - losses[k]
            bar = beta * step * (np.array(gradients[k]) @ d) / batches[k]
            allowed = losses[k] + (bar if rule == "printed" else -bar) + (1e-6 if k == dead else 0.0)
            happy = happy and bool(row[k] <= allowed) and row[k] < np.inf
        tried.append(step)
        changes.append(change if heard else np.inf)
        if heard and happy:
            expected = step
            break
    assert found.accepted == expected
    assert list(found.tried) == tried
    assert found.changes == pytest.approx(changes)
    assert found.direction is not None
    assert found.direction.tolist() == pytest.approx(list(d))


def test_the_search_stops_asking_once_a_step_is_accepted() -> None:
    federation = Table(np.array([[2.0, 2.0, 2.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    found = look(federation, objectives([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [0.4, 0.2, 0.1])
    assert (found.accepted, found.tried, federation.shown) == (0.2, (0.4, 0.2), 2)


def test_changes_are_summed_over_whoever_answered() -> None:
    federation = Table(np.array([[2.0, np.nan, 3.5], [np.inf, 0.0, 0.0], [np.nan] * 3]))
    found = look(federation, objectives([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [0.4, 0.2, 0.1])
    assert found.changes == (3.5, np.inf, np.inf)


def test_only_a_dead_objective_has_slack() -> None:
    """The direction is orthogonal to a's gradient: its loss may not rise at all."""
    coefficients = np.array([0.0, 1.0])
    for gradient, step in (([1.0, 0.0], None), ([0.0, 0.0], 0.4)):
        federation = Table(np.array([[1.0 + 5e-7, 0.0, 0.0]]))
        found = look(federation, objectives([gradient, [0.0, 1.0]]), [0.4], coefficients)
        assert found.accepted == step


def test_nobody_answered_is_not_an_approval() -> None:
    found = look(Table(np.full((2, 3), np.nan)), objectives([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [0.4, 0.2])
    assert found.accepted is None
    assert found.changes == (np.inf, np.inf)


def test_a_client_without_a_gradient_is_not_asked() -> None:
    federation = Table(np.array([[0.0, 0.0, np.inf]]))
    found = look(federation, objectives([[1.0, 0.0], [0.0, 1.0]]), [0.4])
    assert set(federation.objectives) == {"a", "b"}
    assert found.accepted == 0.4


def test_no_steps_ask_nobody_but_give_the_direction() -> None:
    federation = QuadraticFederation(2, a=linear([1.0, 0.0]), b=linear([0.0, 1.0]))
    found = look(federation, objectives([[1.0, 0.0], [0.0, 1.0]]), [])
    assert federation.asked == []
    assert federation.traffic.down == 0
    assert found.direction is not None
    assert (found.direction.tolist(), found.accepted) == ([1.0, 1.0], None)


class Scripted(QuadraticFederation):
    """Clients that answer every trial with a fixed value, or not at all."""

    def __init__(self, answers: Mapping[str, float | None], steps_per_question: int | None) -> None:
        super().__init__(2, **{i: linear([1.0, 0.0]) for i in answers})
        self.scripted, self.steps_per_question = answers, steps_per_question

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
        for i, question in questions.items():
            assert isinstance(question, TrialLosses)
            self.asked.append((i, question))
            value = self.scripted[i]
            yield i, Failure("gone") if value is None else Losses((value,) * len(question.steps))


@pytest.mark.parametrize("steps_per_question", [None, 1, 2])
def test_who_is_missing_in_the_search_is_named(steps_per_question: int | None) -> None:
    federation = Scripted({"a": 0.0, "b": None}, steps_per_question)
    found = look(federation, objectives([[1.0, 0.0], [0.0, 1.0]]), [0.4, 0.2, 0.1])
    assert (found.accepted, found.tried, found.missing) == (0.4, (0.4,), {"b": "gone"})
    assert len(federation.asked) == 2
    asked: list[Any] = [q for _, q in federation.asked]
    assert {len(q.steps) for q in asked} == {steps_per_question or 3}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_diverged_loss_is_rejected_and_its_change_infinite(value: float) -> None:
    found = look(Scripted({"a": 0.0, "b": value}, None), objectives([[1.0, 0.0], [0.0, 1.0]]), [0.4])
    assert found.accepted is None
    assert found.changes == (np.inf,)
