"""Signals of extreme logits, against plain formulas where those work, and their order where those give up."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logit

from fupareto.tasks import signals
from fupareto.tasks.signals import Array, Outputs

PER_SAMPLE = [signals.low_loss, signals.probability, signals.margin, signals.low_entropy, signals.scaled]


def outputs(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Outputs]:
    shapes = st.tuples(st.integers(1, 5), st.integers(2, 6))
    logits = shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=elements))
    return logits.map(lambda z: Outputs(z, np.arange(len(z)) % z.shape[1]))


def of(*rows: list[float]) -> Outputs:
    """Rows of logits of samples whose label is 0."""
    return Outputs(np.array(rows, np.float64), np.zeros(len(rows), np.int64))


@given(outputs(st.floats()))
def test_finite_whatever_the_logits(given_: Outputs) -> None:
    for signal in PER_SAMPLE:
        values = signal(given_)
        assert values.shape == (len(given_),)
        assert np.isfinite(values).all()
    for table in (signals.confidences, signals.log_confidences):
        assert table(given_).shape == given_.logits.shape
        assert np.isfinite(table(given_)).all()
    np.testing.assert_allclose(signals.confidences(given_).sum(axis=1), 1.0, rtol=1e-12)


@given(outputs(st.floats(-50, 50)), st.floats(-1e3, 1e3))
def test_a_constant_added_to_all_logits_changes_nothing(given_: Outputs, constant: float) -> None:
    moved = Outputs(given_.logits + constant, given_.labels)
    for signal in [*PER_SAMPLE, signals.confidences, signals.log_confidences]:
        np.testing.assert_allclose(signal(moved), signal(given_), rtol=1e-9, atol=1e-9)


@given(outputs(st.floats(-15, 15)))
def test_plain_formulas_where_they_work(given_: Outputs) -> None:
    logits, labels = torch.tensor(given_.logits), torch.tensor(given_.labels)
    p = torch.softmax(logits, dim=1)
    own = p.gather(1, labels[:, None])[:, 0].numpy()
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    np.testing.assert_allclose(signals.low_loss(given_), -loss.numpy(), atol=1e-12)
    np.testing.assert_allclose(signals.probability(given_), own, atol=1e-12)
    np.testing.assert_allclose(signals.low_entropy(given_), -torch.special.entr(p).sum(dim=1).numpy(), atol=1e-10)
    np.testing.assert_allclose(signals.confidences(given_), -np.sort(-p.numpy(), axis=1), atol=1e-12)
    sure = np.minimum(own, 1 - own) > 1e-6  # else the formula itself is inexact
    np.testing.assert_allclose(signals.scaled(given_)[sure], logit(own[sure]), rtol=1e-7, atol=1e-8)


def test_margin_by_hand() -> None:
    given_ = Outputs(np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [0.0, 0.0, 0.0]]), np.array([0, 1, 2]))
    assert signals.margin(given_).tolist() == [1.0, -2.0, 0.0]


@pytest.mark.parametrize("signal", [signals.low_loss, signals.low_entropy, signals.margin, signals.scaled])
def test_the_very_sure_keep_their_order(signal: Callable[[Outputs], Array]) -> None:
    """1 - p is 0 for all of these in float64; whoever learned them by heart would look like all others."""
    values = signal(of([50.0, 0.0, 1.0], [100.0, 0.0, 1.0], [300.0, 0.0, 1.0], [600.0, 0.0, 1.0]))
    assert (np.diff(values) > 0).all()


@pytest.mark.parametrize("signal", [signals.low_loss, signals.margin, signals.scaled])
def test_the_very_wrong_keep_their_order(signal: Callable[[Outputs], Array]) -> None:
    values = signal(of([-1e4, 0.0, 1.0], [-1e3, 0.0, 1.0], [-500.0, 0.0, 1.0], [-50.0, 0.0, 1.0]))
    assert (np.diff(values) > 0).all()


def test_log_confidences_see_beyond_one() -> None:
    top = signals.log_confidences(of([50.0, 0.0], [60.0, 0.0]))[:, 0]
    np.testing.assert_allclose(top, [-np.exp(-50.0), -np.exp(-60.0)], rtol=1e-12)


def test_a_row_with_nan_says_as_much_as_equal_logits() -> None:
    broken, equal = of([np.nan, 5.0, 1.0]), of([0.0, 0.0, 0.0])
    for signal in PER_SAMPLE:
        np.testing.assert_array_equal(signal(broken), signal(equal))


def test_infinite_logits_are_very_large_ones() -> None:
    assert signals.probability(of([np.inf, 0.0], [-np.inf, 0.0], [np.inf, np.inf])).tolist() == [1.0, 0.0, 0.5]


def test_no_samples_no_signals() -> None:
    nobody = Outputs(np.empty((0, 3)), np.empty(0, np.int64))
    assert len(nobody) == 0
    for signal in PER_SAMPLE:
        assert signal(nobody).shape == (0,)
    assert signals.log_confidences(nobody).shape == (0, 3)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros((2, 1)), np.zeros(2, np.int64), "at least two classes"),
        (np.zeros(4), np.zeros(4, np.int64), "at least two classes"),
        (np.zeros((2, 3)), np.zeros(3, np.int64), "2 rows of logits"),
        (np.zeros((2, 3)), np.array([0, 3]), "from 0 to 2"),
        (np.zeros((2, 3)), np.array([-1, 0]), "from 0 to 2"),
    ],
)
def test_outputs_that_do_not_fit_together_are_refused(logits: Array, labels: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outputs(logits, labels.astype(np.int64))
