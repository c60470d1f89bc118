"""Answers to requests: what a later model knows again is seen, and only models of the federation are adopted."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import safetensors.torch
import torch

import fupareto
from fupareto import answering
from fupareto.errors import UserError
from fupareto.evidence import Ledger
from fupareto.evidence.entries import Entry

TODAY = datetime.now(UTC).date()
TRAINING = fupareto.FedAvg(rounds=10, lr=0.5, batch_size=10)


def federation() -> fupareto.Federation:
    """Return clients with the same easy task: three classes, each in a corner of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3)

    def samples(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(60) % 3
        return torch.eye(3)[y] + 0.3 * torch.randn(60, 3, generator=torch.Generator().manual_seed(seed)), y

    return fupareto.simulate(model, {i: (samples(ord(i)), samples(ord(i) + 99)) for i in "abcd"}, workers=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, engine = tmp_path_factory.mktemp("answering") / "training", federation()
    fupareto.train(engine, engine.fresh(1), TRAINING, out=place, measure_every=0)
    return place


def answered(trained: Path, place: Path, **request: object) -> tuple[Ledger, answering.How]:
    """Return a ledger in which a request was answered by a retraining."""
    ledger = answering.begin(place / "ledger", trained)
    ledger.add({"clients": [], **request}, TODAY, TODAY + timedelta(days=30))
    how = answering.with_federation(federation(), "retrain", dormancy=0)
    answering.answer(ledger, [1], how)
    return ledger, how


def kept(ledger: Ledger, entry: Entry) -> Path:
    """Return the model of an entry's run."""
    run = ledger.run_of(entry)
    return next(path for path in (run / "unlearned.safetensors", run / "initial.safetensors") if path.is_file())


def changed(model: Path, out: Path, **more: torch.Tensor) -> Path:
    """Write a model that answers like another one, with all weights a little larger."""
    tensors = safetensors.torch.load_file(model)
    safetensors.torch.save_file({name: 1.01 * t for name, t in tensors.items()} | more, out)
    return out


def test_a_class_that_is_back_is_not_still_forgotten(trained: Path, tmp_path: Path) -> None:
    """A model that never saw a class gets nothing of it right, however good it is on test data of the others."""
    ledger, how = answered(trained, tmp_path, classes=[1])
    answer = ledger.answers[0]
    same = answering.adopt(ledger, changed(kept(ledger, answer), tmp_path / "same.safetensors"), how)["earlier"]["1"]
    assert (same["result"], same["forget_acc"]) == ("held", 0)
    back = answering.adopt(ledger, changed(kept(ledger, ledger.entries[0]), tmp_path / "b.safetensors"), how)
    assert back["earlier"]["1"]["forget_acc"] > 0.8
    assert back["earlier"]["1"]["result"] == "back"
    assert "on test data" not in back["earlier"]["1"]["text"]


@pytest.mark.parametrize("more", [{}, {"frozen": torch.ones(2)}])
def test_a_model_from_before_the_answer_has_forgotten_nothing(
    trained: Path, tmp_path: Path, more: dict[str, torch.Tensor]
) -> None:
    """Its accuracy on a client's data may be that on test data; that it was trained on them, its weights say."""
    ledger, how = answered(trained, tmp_path, clients=["a"])
    tensors = safetensors.torch.load_file(kept(ledger, ledger.entries[0]))
    old, further = tmp_path / "old.safetensors", tmp_path / "further.safetensors"
    safetensors.torch.save_file(tensors | more, old)
    assert answering.adopt(ledger, changed(old, further), how)["earlier"]["1"]["result"] == "held"
    found = answering.adopt(ledger, old, how)["earlier"]["1"]
    assert found["result"] == "back"
    assert "was in use before the request was answered" in found["text"]
    assert answering.adopt(ledger, kept(ledger, ledger.answers[0]), how)["earlier"]["1"]["result"] == "held"


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"other": torch.zeros(3, 3)}, "'weight' is missing"),
        ({"weight": torch.zeros(4, 3), "bias": torch.zeros(4)}, r"'weight' has shape \(4, 3\)"),
        ({"weight": torch.zeros(3, 3), "bias": torch.full((3,), torch.nan)}, "NaN"),
    ],
)
def test_only_a_model_of_the_federation_is_adopted(
    trained: Path, tmp_path: Path, tensors: dict[str, torch.Tensor], why: str
) -> None:
    """Also where nothing was answered yet, so that nothing is measured."""
    ledger, how = answering.begin(tmp_path / "ledger", trained), answering.with_federation(federation(), "retrain")
    head, model = ledger.head, tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, model)
    with pytest.raises(UserError, match=f"is not a model of this federation: .*{why}"):
        answering.adopt(ledger, model, how)
    assert ledger.head == head
    assert answering.adopt(ledger, trained, how)["earlier"] == {}
