"""Local training by torch.optim, against a plain loop over the same batches."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fupareto import parameters
from fupareto.federation.questions import Train
from fupareto.tasks.losses import Loss

from .worlds import clients, plain, start

CASES: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any], dict[str, Any]]] = {
    "momentum": (torch.optim.SGD, {"momentum": 0.9}, {"momentum": 0.9}),
    "sgd with decay": (torch.optim.SGD, {"weight_decay": 0.1}, {"weight_decay": 0.1}),
    "adam": (torch.optim.Adam, {}, {"optimizer": "adam"}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.2}, {"optimizer": "adamw", "weight_decay": 0.2}),
    "clipped": (torch.optim.SGD, {}, {"clip": 0.05}),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_torch(name: str) -> None:
    kind, theirs, ours = CASES[name]
    splits = clients()["c2"]
    found = Train(start(), Loss("ce"), 0.05, 2, 8, 0, **ours).answer(plain(), splits, "c2").w
    module = plain().train()
    optimiser = kind(module.parameters(), lr=0.05, **theirs)  # type: ignore[call-arg]
    x, y = splits["train"]
    for _ in range(2):
        for part, labels in zip(torch.split(x, 8), torch.split(y, 8), strict=True):
            optimiser.zero_grad()
            F.cross_entropy(module(part), labels).backward()  # type: ignore[no-untyped-call]
            if "clip" in ours:
                torch.nn.utils.clip_grad_norm_(module.parameters(), ours["clip"])
            optimiser.step()
    torch.testing.assert_close(found, parameters.read(module), rtol=1e-4, atol=1e-6)


def test_shuffling_depends_on_the_seed_and_nothing_else() -> None:
    splits = clients()["c2"]

    def trained(seed: int, shuffle: bool) -> torch.Tensor:
        question = Train(start(), Loss("ce"), 0.1, 1, 8, seed, shuffle=shuffle)
        return question.answer(plain(), splits, "c2").w

    assert torch.equal(trained(1, True), trained(1, True))
    assert not torch.equal(trained(1, True), trained(2, True))
    assert torch.equal(trained(1, False), trained(2, False))


def test_the_state_of_an_optimiser_starts_anew_with_every_question() -> None:
    splits, module = clients()["c2"], plain()
    question = Train(start(), Loss("ce"), 0.1, 1, 8, 0, optimizer="adam")
    first = question.answer(module, splits, "c2").w
    assert torch.equal(question.answer(module, splits, "c2").w, first)
