import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fupareto.errors import UserError
from fupareto.tasks.losses import Loss

EVERY = [
    Loss("ce"),
    Loss("mbs"),
    Loss("mbs", delta=0.5, form="printed"),
    Loss("uce"),
    Loss("kl"),
    Loss("kl", direction="model"),
    Loss("ascent"),
]
Batch = tuple[Tensor, Tensor]


@st.composite
def batches(draw: st.DrawFn, bound: float = 50.0) -> Batch:
    """Logits and labels; logits from a coarse grid, so that ties and near-ties do occur."""
    classes, size = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    grid = st.integers(-4, 4).map(lambda k: k * 2.5e-4)
    wide = st.floats(-bound, bound, width=32)
    rows = st.lists(st.one_of(grid, wide), min_size=classes, max_size=classes)
    logits = draw(st.lists(rows, min_size=size, max_size=size))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=size, max_size=size))
    return torch.tensor(logits), torch.tensor(labels)


def gradient(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Of the mean over the batch, as a client's objective has it."""
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, labels).mean(), leaf)[0]


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(z - max(row)) for z in row]
    return [p / sum(powers) for p in powers]


def by_hand(loss: Loss, z: list[float], y: int) -> float:
    """One sample, in Python floats, as the papers print it."""
    p, classes = softmax(z), len(z)
    margin = z[y] - max(v for k, v in enumerate(z) if k != y)
    delta = float(loss.options.get("delta", 1e-3))
    match loss.name:
        case "ce":
            return -math.log(p[y])
        case "mbs":
            return max(0.0, margin + (-delta if loss.options.get("form") == "printed" else delta))
        case "uce":
            return -math.log(1 - p[y] / 2)
        case "kl" if loss.options.get("direction") == "model":
            return sum(q * math.log(q * classes) for q in p)
        case "kl":
            return sum(math.log(1 / (classes * q)) / classes for q in p)
        case "ascent":
            return math.log(p[y])
    raise AssertionError(loss)


@pytest.mark.parametrize("loss", EVERY, ids=repr)
@settings(max_examples=30)
@given(batch=batches(bound=8.0))
def test_every_loss_is_its_formula_per_sample(loss: Loss, batch: Batch) -> None:
    logits, labels = batch
    found = loss(logits, labels)
    assert found.shape == labels.shape
    wanted = [by_hand(loss, z, y) for z, y in zip(logits.tolist(), labels.tolist(), strict=True)]
    torch.testing.assert_close(found, torch.tensor(wanted), atol=2e-5, rtol=1e-4)


@settings(max_examples=60)
@given(batches())
def test_mbs_zero_means_the_label_is_not_predicted_any_more(batch: Batch) -> None:
    logits, labels = batch
    gone = Loss("mbs")(logits, labels) == 0
    assert bool((logits.argmax(1) != labels)[gone].all())


def test_printed_mbs_is_content_with_a_label_that_is_still_predicted() -> None:
    logits, labels = torch.tensor([[1.0005, 1.0, 0.0]]), torch.tensor([0])
    assert Loss("mbs", form="printed")(logits, labels).item() == 0
    assert logits.argmax(1).item() == labels.item()
    assert Loss("mbs")(logits, labels).item() > 0


@settings(max_examples=60)
@given(batch=batches(), form=st.sampled_from(["separating", "printed"]))
def test_mbs_is_not_negative_and_still_where_it_is_zero(batch: Batch, form: str) -> None:
    logits, labels = batch
    loss = Loss("mbs", form=form)
    values = loss(logits, labels)
    assert bool((values >= 0).all())
    assert not gradient(loss, logits, labels)[values == 0].any()


@settings(max_examples=60)
@given(batches())
def test_mbs_gradient_touches_the_label_and_the_best_other_alone(batch: Batch) -> None:
    logits, labels = batch
    others = logits.scatter(1, labels[:, None], -math.inf)
    values = Loss("mbs")(logits, labels)
    for row, y, rivals, value in zip(gradient(Loss("mbs"), logits, labels), labels, others, values, strict=True):
        if value == 0:
            continue
        assert row[y].item() == pytest.approx(1 / len(labels))
        best = rivals == rivals.max()  # a tie may share the -1 in any way: all are subgradients
        assert row[best].sum().item() == pytest.approx(-1 / len(labels))
        untouched = ~best
        untouched[y] = False
        assert not row[untouched].any()


@settings(max_examples=40)
@given(batches(bound=1e4))
def test_uce_lies_between_zero_and_log_two(batch: Batch) -> None:
    values = Loss("uce")(*batch)
    assert bool((values >= 0).all())
    assert bool((values <= math.log(2) + 1e-6).all())


@pytest.mark.parametrize("loss", EVERY, ids=repr)
def test_extreme_logits_stay_finite(loss: Loss) -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0], [1e4, 1e4, 1e4], [-1e4, -1e4, -1e4]])
    labels = torch.zeros(4, dtype=torch.long)
    assert bool(torch.isfinite(loss(logits, labels)).all())
    assert bool(torch.isfinite(gradient(loss, logits, labels)).all())


def test_uce_reaches_its_bound_when_sure_and_zero_when_gone() -> None:
    values = Loss("uce")(torch.tensor([[1e4, -1e4], [-1e4, 1e4]]), torch.tensor([0, 0]))
    assert values.tolist() == pytest.approx([math.log(2), 0.0])


@pytest.mark.parametrize("direction", ["uniform", "model"])
@settings(max_examples=40)
@given(batch=batches(bound=20.0))
def test_kl_is_zero_on_the_uniform_distribution_and_positive_elsewhere(direction: str, batch: Batch) -> None:
    logits, labels = batch
    loss = Loss("kl", direction=direction)
    values, spread = loss(logits, labels), logits.amax(1) - logits.amin(1)
    assert bool((values > -1e-5).all())
    assert bool((values[spread > 0.1] > 1e-4).all())
    flat = logits[:, :1].expand_as(logits)
    torch.testing.assert_close(loss(flat, labels), torch.zeros(len(labels)), atol=1e-6, rtol=0)


def test_kl_directions_differ() -> None:
    logits, labels = torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([0])
    uniform, model = (Loss("kl", direction=d)(logits, labels).item() for d in ("uniform", "model"))
    assert Loss("kl")(logits, labels).item() == uniform
    assert abs(uniform - model) > 0.05


@settings(max_examples=20)
@given(batches())
def test_ascent_is_minus_cross_entropy(batch: Batch) -> None:
    assert torch.equal(Loss("ascent")(*batch), -Loss("ce")(*batch))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("msb", {}, "unknown loss 'msb'; there are ce, mbs"),
        ("ce", {"delta": 1.0}, "has no option 'delta'; it has none"),
        ("mbs", {"margin": 1.0}, "has no option 'margin'; it has delta, form"),
        ("mbs", {"form": "literal"}, "form must be one of separating, printed"),
        ("mbs", {"delta": "big"}, "delta must be a finite number"),
        ("mbs", {"delta": math.inf}, "delta must be a finite number"),
        ("kl", {"direction": "forward"}, "direction must be one of uniform, model"),
    ],
)
def test_unknown_names_and_options_are_the_users_error(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Loss(name, **options)


@pytest.mark.parametrize("loss", EVERY, ids=repr)
def test_repr_reproduces_the_loss(loss: Loss) -> None:
    again = eval(repr(loss))
    assert again == loss
    assert hash(again) == hash(loss)


def test_losses_with_other_options_are_other_losses() -> None:
    assert len(set(EVERY)) == len(EVERY)
    assert Loss("mbs", delta=1.0) != Loss("mbs", delta=2.0)
    assert Loss("ce") != "ce"
