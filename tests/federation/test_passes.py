"""Passes over the training data, as questions count them, against the samples that a model is seen to process."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fupareto.federation import Local, SimulatedFederation
from fupareto.federation.collected import Trial
from fupareto.federation.questions import Evaluate, Gradient, PseudoGradient, Question, Signals, Train, TrainWithin
from fupareto.federation.questions.fededitor import Edit
from fupareto.federation.questions.gradients import TrialLosses
from fupareto.federation.questions.ridge import Sums
from fupareto.federation.request import Splits
from fupareto.tasks.losses import Loss

from .worlds import CLASSES, FEATURES, clients

HELD_OUT = 100.0  # first feature of the samples that are not for training
CE = Loss("ce")
SGD: dict[str, Any] = {"lr": 0.1, "epochs": 2, "batch_size": 9, "seed": 5}
seen: dict[str, int] = {}  # training samples that went forward, and back


class Watched(nn.Module):
    """Two dense layers that note which training samples go through them."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(FEATURES[0], 12), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for_training = int((x[:, 0] != HELD_OUT).sum())
        seen["forward"] += for_training
        hidden: Tensor = self.body(x)
        if hidden.requires_grad:
            hidden.register_hook(lambda _: seen.update(back=seen["back"] + for_training))  # type: ignore[no-untyped-call]
        outputs: Tensor = self.head(torch.tanh(hidden))
        return outputs


def world() -> dict[str, Splits]:
    found = clients(count=3)
    for splits in found.values():
        splits["test"][0][:, 0] = HELD_OUT
    return found


@pytest.fixture
def federation() -> SimulatedFederation:
    seen.update(forward=0, back=0)
    return SimulatedFederation(Watched(), world(), workers=1)


def questions(w: Tensor) -> dict[str, Question]:
    other = w + 0.1
    return {
        "train": Train(w, CE, **SGD),
        "imitate": Train(w, Loss("imitate"), **SGD, reference=other),
        "within": TrainWithin(w, other, 0.8, Loss("ascent"), momentum=0.9, clip=1.0, **SGD),
        "edit": Edit(w, other, tau=0.5, mu=1.0, keep=False, **SGD),
        "gradient": Gradient(w, CE),
        "npo": Gradient(w, Loss("npo", b=0.5), reference=other),
        "pseudo": PseudoGradient(w, CE, 0.1, 2, 9),
        "npo, pseudo": PseudoGradient(w, Loss("npo", b=0.5), 0.1, 2, 9, reference=other),
        "trials": TrialLosses(w, other, (0.1, 0.2, 0.4), CE),
        "sums": Sums(w, 12, CLASSES),
        "evaluate": Evaluate(w, ("test",)),
        "signals": Signals(w, ("test",)),
    }


@pytest.mark.parametrize("kind", questions(torch.zeros(1)))
def test_questions_count_what_a_model_processes(federation: SimulatedFederation, kind: str) -> None:
    w = torch.sin(torch.arange(float(federation.layout.size)))
    asked = questions(w)[kind]
    sizes = {i: len(samples["train"]) for i, samples in federation.clients.items()}
    seen.update(forward=0, back=0)
    answers, missing = federation.answers(dict.fromkeys(sizes, asked))
    assert (missing, set(answers)) == ({}, set(sizes))
    assert seen["forward"] / 3 + 2 * seen["back"] / 3 == pytest.approx(asked.passes * sum(sizes.values()))
    assert federation.traffic.passes == pytest.approx(3 * asked.passes)


def test_passes_are_those_of_the_clients_that_were_asked(federation: SimulatedFederation) -> None:
    w = torch.sin(torch.arange(float(federation.layout.size)))
    ids = federation.ids
    federation.train_mean(w, ids[:2], CE, Local(0.1, epochs=3))
    assert federation.traffic.passes == pytest.approx(6)
    federation.gradients(w, dict.fromkeys(ids, CE))
    federation.gradients(w, dict.fromkeys(ids, CE), repeated=True)  # kept, or asked again after a restart
    assert federation.traffic.passes == pytest.approx(9)
    trial = Trial(w, torch.ones_like(w), (0.2, 0.1))
    losses = federation.losses(trial, dict.fromkeys(ids, CE), {})
    next(losses)
    assert federation.traffic.passes == pytest.approx(10)  # the second step was not asked for
    refused = [{i: float(i != ids[0]) for i in ids}] * 2
    list(federation.losses(trial, dict.fromkeys(ids, CE), {}, refused))
    assert federation.traffic.passes == pytest.approx(10 + 2 / 3)  # one veto is enough
    federation.evaluate(w, ids, ("test",))
    assert federation.traffic.passes == pytest.approx(10 + 2 / 3)
