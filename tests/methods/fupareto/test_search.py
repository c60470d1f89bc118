"""Both line searches against the plainest reimplementation, and who is asked, named and given a veto."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fupareto.federation.collected import Missing, Trial
from fupareto.federation.questions import Answer, Failure, Losses, Question, TrialLosses
from fupareto.methods.fupareto.objectives import Objectives
from fupareto.methods.fupareto.search import Found, HarmLimit, Line, Rule, search_expansion, search_improvement
from fupareto.pareto import Array, trial_steps
from fupareto.tasks.losses import Loss

from ..quadratics import QuadraticFederation, linear, vector
from .test_objectives import IDS, objectives

CE = Loss("ce")
Armijo = Literal["descent", "printed"]
SQUARE = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


class Table(QuadraticFederation):
    """Losses out of a table: one row per trial step, nan for a client that does not answer."""

    def __init__(self, table: Array) -> None:
        super().__init__(2, a=linear([1.0, 0.0]), b=linear([1.0, 0.0]), c=linear([1.0, 0.0]))
        self.table = table
        self.shown = 0
        self.objectives: Mapping[str, Loss] = {}

    def losses(
        self,
        trial: Trial,
        objectives: Mapping[str, Loss],
        missing: Missing,
        limits: Sequence[Mapping[str, float]] | None = None,
        first: str = "",
    ) -> Iterator[Array]:
        self.objectives = objectives
        for row in self.table[:, [IDS.index(i) for i in objectives]]:
            self.shown += 1
            yield row


def line(
    found: Objectives, steps: Sequence[float], coefficients: Array | None = None, rule: Rule | None = None
) -> Line:
    c = np.ones(len(found.gram)) if coefficients is None else coefficients
    return Line(vector(0.0, 0.0), found, c, tuple(steps), rule or Rule(0.25))


def look(federation: QuadraticFederation, found: Objectives, steps: Sequence[float], **options: Any) -> Found:
    return search_improvement(federation, line(found, steps, **options), dict.fromkeys(IDS, CE))


values = st.sampled_from([0.0, 0.5, 0.9, 0.95, 1.0, 1.0 + 5e-7, 1.1, 2.0, np.inf, np.nan])
tables = st.lists(st.tuples(values, values, values), min_size=5, max_size=5).map(lambda rows: np.array(rows))
armijos = st.sampled_from(["descent", "printed"])
BATCHES, LOSSES, COEFFICIENTS, BETA = [1.0, 2.0, 4.0], [1.0, 1.0, 1.0], np.array([0.3, 0.2, 0.1]), 0.25


def gradients_with(dead: int) -> list[list[float]]:
    found = [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]
    found[dead] = [0.0, 0.0]
    return found


def accepts(k: int, loss: float, step: float, gradients: list[list[float]], armijo: Armijo, dead: int) -> bool:
    """Eq. (6) for one client, written out."""
    d = sum(c * np.array(g) for c, g in zip(COEFFICIENTS, gradients, strict=True))
    bar = BETA * step * (np.array(gradients[k]) @ d) / BATCHES[k]
    return bool(
        loss < np.inf and loss <= LOSSES[k] + (bar if armijo == "printed" else -bar) + (1e-6 if k == dead else 0)
    )


@given(tables, armijos, st.integers(0, 2), st.sets(st.sampled_from(IDS), min_size=1))
def test_an_improvement_is_the_first_step_that_nobody_vetoes(
    table: Array, armijo: Armijo, dead: int, asked: set[str]
) -> None:
    gradients, steps = gradients_with(dead), trial_steps(0.4, 2, enlarge=True)
    ids = [i for i in IDS if i in asked]
    searched = line(objectives(gradients, LOSSES, BATCHES), steps, COEFFICIENTS, Rule(BETA, armijo))
    found = search_improvement(Table(table), searched, dict.fromkeys(ids, CE))

    expected, tried = None, []
    for step, row in zip(steps, table, strict=True):
        heard = [(k, row[k]) for k in map(IDS.index, ids) if not np.isnan(row[k])]
        tried.append(step)
        if heard and all(accepts(k, loss, step, gradients, armijo, dead) for k, loss in heard):
            expected = step
            break
    assert found.accepted == expected
    assert list(found.tried) == tried
    assert found.direction is not None
    d = sum(c * np.array(g) for c, g in zip(COEFFICIENTS, gradients, strict=True))
    assert found.direction.tolist() == pytest.approx(list(d))


@given(tables, armijos, st.integers(0, 1), st.sampled_from([0.0, 0.05, 0.5, 1e9]), st.booleans(), st.floats(0.5, 2.0))
def test_an_expansion_is_for_the_forget_clients_within_the_limit_of_harm(
    table: Array, armijo: Armijo, dead: int, share: float, falls_back: bool, baseline: float
) -> None:
    """a and b are forgotten, c is retained; where no step passes, the one that lowers a + b most is taken."""
    gradients, steps = gradients_with(dead), trial_steps(0.4, 4, enlarge=False)
    rule = Rule(BETA, armijo, fallback="best" if falls_back else "skip")
    searched = line(objectives(gradients, LOSSES, BATCHES), steps, COEFFICIENTS, rule)
    limit = HarmLimit({"c": baseline}, share)
    found = search_expansion(Table(table), searched, {"a": CE, "b": CE}, {"c": CE}, limit)

    expected, best, lowest = None, None, 0.0
    for step, row in zip(steps, table, strict=True):
        harmed = not np.isnan(row[2]) and row[2] > (1 + share) * baseline
        heard = [(k, row[k]) for k in (0, 1) if not np.isnan(row[k])]
        if harmed or not heard:
            continue
        if all(accepts(k, loss, step, gradients, armijo, dead) for k, loss in heard):
            expected = step
            break
        change = sum(loss - LOSSES[k] for k, loss in heard)
        if change < lowest:
            best, lowest = step, change
    assert found.accepted == (expected if expected is not None or not falls_back else best)
    if found.accepted is not None:
        loss = table[steps.index(found.accepted)][2]
        assert found.harm == (None if np.isnan(loss) else pytest.approx(loss / baseline))


def test_without_a_baseline_a_retained_client_is_not_asked() -> None:
    federation = Table(np.array([[0.0, 0.0, 9.0]]))
    found = search_expansion(federation, line(objectives(SQUARE), [0.4]), {"a": CE}, {"c": CE}, HarmLimit({}, 0.0))
    assert set(federation.objectives) == {"a"}
    assert (found.accepted, found.harm) == (0.4, None)


def test_the_search_stops_asking_once_a_step_is_accepted() -> None:
    federation = Table(np.array([[2.0, 2.0, 2.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    found = look(federation, objectives(SQUARE), [0.4, 0.2, 0.1])
    assert (found.accepted, found.tried, federation.shown) == (0.2, (0.4, 0.2), 2)


def test_only_a_dead_objective_has_an_allowance() -> None:
    """The direction is orthogonal to a's gradient: its loss may not rise at all."""
    coefficients = np.array([0.0, 1.0])
    for gradient, step in (([1.0, 0.0], None), ([0.0, 0.0], 0.4)):
        federation = Table(np.array([[1.0 + 5e-7, 0.0, 0.0]]))
        found = look(federation, objectives([gradient, [0.0, 1.0]]), [0.4], coefficients=coefficients)
        assert found.accepted == step


def test_a_loss_may_rise_up_to_its_goal_and_no_further() -> None:
    answer = objectives([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [2e-4, 5e-4, 0.4]).answer
    found = Objectives.of(answer, True, None, dict.fromkeys(IDS[:2], 3e-4))
    for first, accepted in ((2.9e-4, 0.2), (3.1e-4, 0.1)):
        federation = Table(np.array([[first, 0.0, 0.0], [2.9e-4, 0.0, 0.0]]))
        assert look(federation, found, [0.2, 0.1], rule=Rule(1e-9)).accepted == accepted


def test_nobody_answered_is_not_an_approval() -> None:
    silent = np.full((2, 3), np.nan)
    assert look(Table(silent), objectives(SQUARE), [0.4, 0.2]).accepted is None
    searched = line(objectives(SQUARE), [0.4, 0.2])
    assert search_expansion(Table(silent), searched, {"a": CE}, {}, HarmLimit({}, 0.0)).accepted is None


def test_a_client_without_a_gradient_is_not_asked() -> None:
    federation = Table(np.array([[0.0, 0.0, np.inf]]))
    found = look(federation, objectives([[1.0, 0.0], [0.0, 1.0]]), [0.4])
    assert set(federation.objectives) == {"a", "b"}
    assert found.accepted == 0.4


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
def test_a_diverged_loss_is_rejected(value: float) -> None:
    for federation in (Scripted({"a": 0.0, "b": value}, None), Scripted({"a": 0.0, "b": value}, 1)):
        assert look(federation, objectives([[1.0, 0.0], [0.0, 1.0]]), [0.4]).accepted is None


# Vetoes ------------------------------------------------------------------------------------------------------------


def test_a_veto_settles_a_step_and_who_vetoed_is_asked_first_at_the_next() -> None:
    federation = Scripted({"a": 0.0, "b": 9.0, "c": 0.0}, steps_per_question=1)
    found = look(federation, objectives(SQUARE), [0.4, 0.2, 0.1])
    assert [i for i, _ in federation.asked] == ["a", "b", "b", "b"]
    assert (found.accepted, found.vetoed) == (None, "b")
    federation.asked.clear()
    search_improvement(federation, line(objectives(SQUARE), [0.1]), dict.fromkeys(IDS, CE), first="c")
    assert [i for i, _ in federation.asked] == ["c", "a", "b"]


@given(tables)
def test_vetoes_change_who_is_asked_and_nothing_else(table: Array) -> None:
    """Asked step by step, with vetoes, or all at once, as over a network: the same step, and the same bytes."""

    class Stepwise(Scripted):
        def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer | Failure]]:
            for i, question in questions.items():
                assert isinstance(question, TrialLosses)
                self.asked.append((i, question))
                losses = [table[STEPS.index(step)][IDS.index(i)] for step in question.steps]
                yield i, Losses(tuple(losses))

    def ended(size: int | None, first: str) -> tuple[Any, ...]:
        federation = Stepwise(dict.fromkeys(IDS, 0.0), size)
        found = search_improvement(federation, line(objectives(SQUARE), STEPS), dict.fromkeys(IDS, CE), first)
        return (found.accepted, found.tried), (federation.traffic.up, federation.traffic.down), len(federation.asked)

    STEPS = trial_steps(0.4, 2, enlarge=True)
    (stepwise, bytes_, asked), (other, same_bytes, _), (whole, _, _) = ended(1, ""), ended(1, "c"), ended(None, "")
    assert stepwise == other == whole
    assert bytes_ == same_bytes
    assert asked <= 3 * len(stepwise[1])
