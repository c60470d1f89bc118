"""How does a client answer? Pure functions of a module, the client's data and the question; engines share them."""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from fupareto import parameters
from fupareto.federation import baselines
from fupareto.federation.local import batches, descend, logits_of, mean_loss, randomness
from fupareto.federation.questions import (
    Answer,
    Edit,
    Evaluate,
    Evaluated,
    Gradient,
    LossAndGradient,
    Losses,
    Predict,
    Predicted,
    PseudoGradient,
    Question,
    Train,
    Trained,
    TrainHead,
    TrainWithin,
    TrialLosses,
)
from fupareto.federation.request import Splits
from fupareto.parameters import Layout


@functools.singledispatch
def answer(question: Question, module: nn.Module, splits: Splits, client: str) -> Answer:
    """Answer one question; ``module`` is scratch space, loaded with the question's ``w`` first."""
    raise TypeError(f"not a question: {type(question).__name__}")


@answer.register
def _(question: Train, module: nn.Module, splits: Splits, client: str) -> Answer:
    x, y = splits["train"]
    reference = logits_of(question.reference, module, x)
    parameters.write(module, question.w)
    with randomness(module, "train", question.seed, client):
        descend(module, x, y, reference, question)
    return Trained(w=parameters.read(module), size=len(y))


@answer.register
def _(question: Gradient, module: nn.Module, splits: Splits, client: str) -> Answer:
    x, y = splits["train"]
    reference = logits_of(question.reference, module, x)
    parameters.write(module, question.w)
    module.zero_grad(set_to_none=True)
    total = 0.0
    with randomness(module, question.mode, question.seed, client):
        for batch_x, batch_y, batch_r in batches(x, y, reference):
            loss = question.loss(module(batch_x), batch_y, batch_r).sum() / len(y)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
    gradient = parameters.read_gradient(module, Layout.of(module))
    module.zero_grad(set_to_none=True)
    return LossAndGradient(loss=total, gradient=gradient, steps=1)


@answer.register
def _(question: PseudoGradient, module: nn.Module, splits: Splits, client: str) -> Answer:
    x, y = splits["train"]
    reference = logits_of(question.reference, module, x)
    parameters.write(module, question.w)
    with randomness(module, question.mode, question.seed, client):
        loss = mean_loss(module, x, y, reference, question.loss)
    with randomness(module, "train", question.seed, client, "epochs"):
        steps = descend(module, x, y, reference, question)
    gradient = (question.w - parameters.read(module)) / question.lr
    gradient[Layout.of(module).trainable :] = 0.0
    return LossAndGradient(loss=loss, gradient=gradient, steps=steps)


@answer.register
def _(question: TrialLosses, module: nn.Module, splits: Splits, client: str) -> Answer:
    x, y = splits["train"]
    losses = []
    for step in question.steps:
        parameters.write(module, question.w - step * question.direction)
        with randomness(module, question.mode, question.seed, client):
            losses.append(mean_loss(module, x, y, None, question.loss))
    return Losses(losses=tuple(losses))


@answer.register
def _(question: Evaluate, module: nn.Module, splits: Splits, client: str) -> Answer:
    parameters.write(module, question.w)
    module.eval()
    counts = {}
    for names in question.splits:
        name = next((name for name in names.split("|") if name in splits), None)
        if name is None:
            continue
        x, y = splits[name]
        right, loss = 0, 0.0
        with torch.no_grad():
            for batch_x, batch_y, _ in batches(x, y):
                logits = module(batch_x)
                right += int((logits.argmax(1) == batch_y).sum())
                loss += float(F.cross_entropy(logits, batch_y, reduction="sum"))
        counts[name] = {"samples": len(y), "right": right, "loss": loss / max(len(y), 1)}
    return Evaluated(counts=counts)


@answer.register
def _(question: Predict, module: nn.Module, splits: Splits, client: str) -> Answer:
    found = next((splits[name] for name in question.splits if name in splits), None)
    if found is None:
        raise ValueError(f"the client has no data called {' or '.join(question.splits)}")
    parameters.write(module, question.w)
    module.eval()
    with torch.no_grad():
        logits = torch.cat([module(x) for x, _, _ in batches(*found)])
    return Predicted(logits=logits, labels=found[1])


@answer.register
def _(question: TrainWithin, module: nn.Module, splits: Splits, client: str) -> Answer:
    return Trained(baselines.train_within(question, module, *splits["train"], client), len(splits["train"][1]))


@answer.register
def _(question: TrainHead, module: nn.Module, splits: Splits, client: str) -> Answer:
    return Trained(baselines.train_head(question, module, *splits["train"], client), len(splits["train"][1]))


@answer.register
def _(question: Edit, module: nn.Module, splits: Splits, client: str) -> Answer:
    w = baselines.edit(question, module, splits["train"], splits["test"], client)
    return Trained(w, len(splits["train"][1]))
