"""A user's own loss: by function, class, object and name; in simulation, over Flower and in experiment files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fupareto
from fupareto import config, trust
from fupareto.experiment.setting import federation, stored_experiment
from fupareto.tasks import Binary, Classes, Numbers, Tokens, task_of
from fupareto.tasks.losses import Loss

OUTPUTS, TARGETS = torch.tensor([[0.5], [2.0], [-1.0]]), torch.tensor([[0.0], [1.0], [1.0]])


def pinball(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss whose minimum is the quantile at nine tenths."""
    error = targets - outputs
    return torch.maximum(0.9 * error, -0.1 * error)


def mean_of(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean()


class Squared(nn.Module):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square()


@pytest.mark.parametrize(
    "criterion",
    [
        F.mse_loss,
        nn.MSELoss,
        nn.MSELoss(),
        Squared,
        Squared(),
        "torch.nn.functional:mse_loss",
        "torch.nn:MSELoss",
        f"{__name__}:Squared",
        lambda outputs, targets: (outputs - targets) ** 2,
    ],
)
def test_a_loss_in_any_form_is_asked_per_sample(criterion: Any) -> None:
    own, plain = task_of({"name": "numbers", "criterion": criterion}), Numbers()
    for name in ("ce", "ascent"):
        ours, theirs = (task.losses(Loss(name), OUTPUTS[:, 0], TARGETS) for task in (own, plain))
        torch.testing.assert_close(ours, theirs)
    assert own.tally(OUTPUTS, TARGETS) == pytest.approx(plain.tally(OUTPUTS, TARGETS))
    assert ":" in own.spec()["criterion"]
    assert own.agreed(own.spec(), "the run's", "ours") == own


def test_every_task_takes_one() -> None:
    logits, labels = torch.randn(3, 4), torch.tensor([0, 3, 1])
    weighted = Classes(criterion=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 3, 4])))
    expected = F.cross_entropy(logits, labels, torch.tensor([1.0, 2, 3, 4]), reduction="none")
    torch.testing.assert_close(weighted.objective(logits, labels), expected)
    assert weighted.tally(logits, labels)[1] == pytest.approx(float(expected.sum()), rel=1e-5)
    yes = Binary(criterion=F.binary_cross_entropy_with_logits)
    torch.testing.assert_close(yes.objective(OUTPUTS, TARGETS[:, 0]), Binary().loss(OUTPUTS, TARGETS[:, 0]))
    text, ids = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    ids[0, 3:] = -100
    own, plain = Tokens(shift=True, criterion=F.cross_entropy), Tokens(shift=True)
    torch.testing.assert_close(own.objective(text, ids), plain.loss(text, ids))


@pytest.mark.parametrize(
    ("criterion", "says"),
    [
        (mean_of, r"returned shape \(\) for 2 samples; it must return one loss per sample"),
        (lambda outputs, targets: None, "returned NoneType for 2 samples"),
        (lambda outputs: outputs, "positional argument"),
        ("nowhere_at_all:loss", "could not be imported"),
        ("torch", "package.module:name"),
        ("torch:pi", "must be a function"),
        (nn.AdaptiveLogSoftmaxWithLoss, "could not be made"),
    ],
)
def test_a_loss_that_cannot_be_used_is_refused_in_words(criterion: Any, says: str) -> None:
    x = torch.randn(12, 4)
    clients = dict.fromkeys("ab", ((x, x[:, 0]), (x, x[:, 0])))
    with pytest.raises(fupareto.UserError, match=says):
        fupareto.simulate(nn.Linear(4, 1), clients, task={"name": "numbers", "criterion": criterion})


def test_training_and_measuring_use_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    noise = torch.randn(300)
    clients = {i: ((torch.zeros(300, 1), noise), (torch.zeros(300, 1), noise)) for i in "abc"}
    engine = fupareto.simulate(nn.Linear(1, 1), clients, task=Numbers(criterion=pinball, tolerance=1.0))
    trained = fupareto.train(engine, nn.Linear(1, 1), fupareto.FedAvg(rounds=40, lr=0.3, batch_size=50))
    assert float(trained.model()["bias"]) == pytest.approx(float(noise.quantile(0.9)), abs=0.15)
    result = fupareto.unlearn(engine, trained, ["b"], "renew", out=tmp_path / "run")
    assert result.summary()["task"]["criterion"] == f"{__name__}:pinball"
    assert fupareto.Result.load(engine, tmp_path / "run").audit(dormancy=0)["verdict"]["checks"]
    with pytest.raises(fupareto.UserError, match=r"the run's criterion is .*pinball, and the federation's is None"):
        fupareto.Result.load(fupareto.simulate(nn.Linear(1, 1), clients, task=Numbers(tolerance=1.0)), tmp_path / "run")


def test_an_experiment_file_names_it_and_a_run_from_elsewhere_does_not(tmp_path: Path) -> None:
    raw = {
        "data": {"source": "diabetes"},
        "task": {"name": "numbers", "criterion": f"{__name__}:pinball"},
        "partition": {"kind": "iid", "clients": 3},
        "request": {"clients": 1},
    }
    experiment = config.validate(raw, "test")
    engine, _ = federation(experiment)
    assert engine.clients["0"]["train"].task.criterion == f"{__name__}:pinball"
    run: Any = SimpleNamespace(config={"experiment": experiment.model_dump()}, path=tmp_path)
    trust.forget()
    with pytest.raises(fupareto.UserError, match=r"pinball.*--trust-code"):
        stored_experiment(run)
    trust.name(*experiment.task_code)
    assert stored_experiment(run) == experiment
    trust.forget()
