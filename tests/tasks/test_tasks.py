"""Every task against plain formulas of torch and scikit-learn, and what all tasks have in common."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import mean_absolute_error, r2_score, roc_auc_score
from torch import Tensor, nn

from fupareto.errors import UserError
from fupareto.tasks import TASKS, Binary, Classes, Labels, Numbers, Task, Tokens, task_of
from fupareto.tasks.calls import call
from fupareto.tasks.losses import Loss


def batch(name: str, seed: int = 0, n: int = 12) -> tuple[Task, Tensor, Tensor]:
    """A task with outputs and targets that fit it."""
    g = torch.Generator().manual_seed(seed)
    options: dict[str, Task] = {"numbers": Numbers(tolerance=0.5), "tokens": Tokens(shift=False)}
    task = options.get(name) or task_of(name)
    shapes = {"classes": (n, 4), "binary": (n, 1), "labels": (n, 3), "numbers": (n, 2), "tokens": (n, 5, 7)}
    outputs = torch.randn(shapes[name], generator=g)
    targets = {
        "classes": torch.randint(4, (n,), generator=g),
        "binary": torch.randint(2, (n, 1), generator=g),
        "labels": torch.randint(2, (n, 3), generator=g),
        "numbers": torch.randn(n, 2, generator=g),
        "tokens": torch.randint(7, (n, 5), generator=g),
    }[name]
    return task, outputs, task.prepared(targets)


@pytest.mark.parametrize("name", TASKS)
def test_minimum_boundary_shift_is_zero_exactly_where_nothing_is_right(name: str) -> None:
    for seed in range(20):
        task, outputs, targets = batch(name, seed)
        found = task.decisions(outputs, targets)
        right = found.mean((found.logits.argmax(1) == found.labels).double())
        loss = task.losses(Loss("mbs", delta=0.0), outputs, targets)
        assert torch.equal(loss > 0, right > 0)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("loss", ["ce", "mbs", "uce", "kl", "ascent", "npo", "imitate"])
def test_every_loss_has_a_gradient_and_one_value_per_sample(name: str, loss: str) -> None:
    task, outputs, targets = batch(name)
    outputs.requires_grad_()
    reference = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(9))
    found = task.losses(Loss(loss), outputs, targets, reference)
    assert found.shape == (12,)
    (gradient,) = torch.autograd.grad(found.sum(), outputs)
    assert bool(torch.isfinite(gradient).all())
    assert float(gradient.abs().sum()) > 0


@pytest.mark.parametrize("name", TASKS)
def test_signals_have_one_row_per_sample_and_compare_with_themselves_as_equal(name: str) -> None:
    task, outputs, targets = batch(name)
    seen = task.signals(outputs, targets)
    assert len(seen) == 12
    assert seen.outputs.shape[0] == 12
    wanted = task.loss(outputs.double(), targets).double()
    torch.testing.assert_close(torch.from_numpy(seen.loss), wanted, rtol=1e-6, atol=1e-9)
    bits, differs = task.apart(outputs, outputs, targets)
    assert bits.abs().max() < 1e-12
    assert differs.tolist() == [0.0] * 12
    bits, differs = task.apart(outputs, -3 * outputs, targets)
    assert bool(((bits >= 0) & (bits <= 1)).all())
    assert float(differs.mean()) > 0


def test_losses_are_those_of_torch() -> None:
    formulas: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "binary": lambda o, y: F.binary_cross_entropy_with_logits(o[:, 0], y, reduction="none"),
        "labels": lambda o, y: F.binary_cross_entropy_with_logits(o, y, reduction="none").mean(1),
        "numbers": lambda o, y: F.mse_loss(o, y, reduction="none").mean(1),
        "tokens": lambda o, y: F.cross_entropy(o.transpose(1, 2), y, reduction="none").mean(1),
    }
    for name, wanted in formulas.items():
        task, outputs, targets = batch(name)
        torch.testing.assert_close(task.loss(outputs, targets), wanted(outputs, targets))


@pytest.mark.parametrize("name", ["binary", "labels", "tokens"])
def test_the_own_loss_is_the_cross_entropy_of_the_decisions(name: str) -> None:
    task, outputs, targets = batch(name)
    torch.testing.assert_close(task.loss(outputs, targets), Task.loss(task, outputs, targets))


def test_measures_are_those_of_scikit_learn() -> None:
    task, outputs, targets = batch("binary", n=200)
    outputs = outputs.round(decimals=1)  # with ties
    assert task.measures(task.evidence(outputs, targets))["auc"] == pytest.approx(roc_auc_score(targets, outputs[:, 0]))
    task, outputs, targets = batch("labels", n=200)
    assert task.measures(task.evidence(outputs, targets))["auc"] == pytest.approx(roc_auc_score(targets, outputs))
    task, outputs, _ = batch("numbers", n=50)
    targets = outputs + 0.3 * torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1))
    one = Numbers().prepared(targets[:, 0])
    found = Numbers().measures(Numbers().evidence(outputs[:, 0], one))
    assert found["mae"] == pytest.approx(mean_absolute_error(one, outputs[:, 0]), rel=1e-5)
    assert found["r2"] == pytest.approx(r2_score(one, outputs[:, 0]), rel=1e-5)
    task, outputs, targets = batch("tokens")
    mean = F.cross_entropy(outputs.flatten(0, 1), targets.flatten())
    assert task.measures(task.evidence(outputs, targets))["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)


def test_pixels_are_positions_and_have_an_intersection_over_union() -> None:
    targets = torch.tensor([[[0, 0], [1, 1]]])
    answers = torch.tensor([[[0, 1], [1, 1]]])
    outputs = F.one_hot(answers, 3).permute(0, 3, 1, 2).float() * 9
    task = Tokens(shift=False)
    task.check(outputs, targets)
    found = task.measures(task.evidence(outputs, targets))
    assert found == {"mean_iou": pytest.approx((1 / 2 + 2 / 3) / 2), "pixel_accuracy": 0.75}


def test_padding_does_not_count_and_the_next_token_does() -> None:
    ids = torch.tensor([[1, 2, 3, 0], [3, 1, 0, 0]])
    outputs = torch.randn(2, 4, 5)
    task = Tokens(padding=0).settled(ids, ids)
    assert task.shift
    wanted = [F.cross_entropy(outputs[0, :2], ids[0, 1:3]), F.cross_entropy(outputs[1, :1], ids[1, 1:2])]
    torch.testing.assert_close(task.loss(outputs, ids), torch.stack(wanted))
    assert Tokens().settled(ids, ids + 1).shift is False


def test_numbers_are_right_within_the_tolerance() -> None:
    task = Numbers(tolerance=0.5)
    right, _ = task.tally(torch.tensor([0.0, 0.4, 0.6]), torch.zeros(3, 1))
    assert right == 2
    assert Numbers().open
    assert not task.open
    assert Numbers().calibrate([{"median_error": 0.1}, {"median_error": 0.3}, {"median_error": 0.2}]).tolerance == 0.4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("binry", "did you mean 'binary'"),
        (7, "task must be one of"),
        ({"name": "numbers", "tolerance": -1.0}, "tolerance must be a number above 0"),
        ({"name": "numbers", "slack": 1.0}, "slack"),
        ("nowhere:Task", "could not be imported"),
        ("torch.nn:Linear", "must be a class derived from"),
    ],
)
def test_tasks_that_cannot_be(given: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        task_of(given)


class Ordinal(Classes):
    """A task of the tests' own: a wrong neighbour costs less."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.softmax(1) * (torch.arange(outputs.shape[1]) - targets[:, None]).abs()).sum(1)


def test_a_task_is_what_its_spec_says() -> None:
    for task in (Classes(), Binary(), Labels(), Numbers(tolerance=0.25), Tokens(shift=True, padding=0)):
        assert task_of(task.spec()) == task
    own = task_of(f"{__name__}:Ordinal")
    assert type(own) is not Classes
    assert own.loss(torch.tensor([[9.0, 0, 0]]), torch.tensor([2])) == pytest.approx(2.0, abs=0.01)


class ByName(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Any:
        return type("Out", (), {"loss": None, "logits": input_ids * 2})()


class Whole(nn.Module):
    def forward(self, batch: dict[str, Tensor]) -> Any:
        return (torch.tensor(1.0), batch["input_ids"] * 2)


class Two(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Any:
        return {"logits": a * b}


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return None


def test_models_are_called_as_they_are_written() -> None:
    x = torch.ones(2, 3)
    inputs = {"input_ids": x, "attention_mask": x, "row": x}
    assert torch.equal(call(ByName(), inputs), 2 * x)
    assert torch.equal(call(Whole(), inputs), 2 * x)
    assert torch.equal(call(Two(), (x, 2 * x)), 2 * x)
    assert torch.equal(call(nn.Identity(), x), x)
    with pytest.raises(UserError, match="a tensor, a tuple"):
        call(Nothing(), x)
