"""The questions that only single methods ask: the same answers on every engine, and faults that are named."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fupareto import serial
from fupareto.federation import Federation, Local, SimulatedFederation
from fupareto.federation.questions import (
    QUESTIONS,
    Edit,
    Evaluated,
    Failure,
    Gradient,
    LossAndGradient,
    PseudoGradient,
    Question,
    Train,
    Trained,
    TrainHead,
    TrainWithin,
)
from fupareto.parameters import Layout
from fupareto.tasks.losses import Loss

from .engines import BytesFederation, FaultyFederation, Reply, always
from .worlds import Factory, clients, dropping, normed, plain, shape_of, start

IDS = ("c0", "c1", "c2", "c3", "c4", "c5")
SGD: dict[str, Any] = {"lr": 0.2, "epochs": 2, "batch_size": 9, "seed": 5}


def questions(model: Factory) -> dict[str, Question]:
    w = start(model)
    head = Layout.of(model()).head()
    other = w + 0.1 * torch.sin(torch.arange(len(w)))
    other[Layout.of(model()).trainable :] = w[Layout.of(model()).trainable :]
    npo, imitate = Loss("npo", b=0.5), Loss("imitate")
    second = other[head.start : head.stop]
    return {
        "within": TrainWithin(w, other, 0.8, Loss("ascent"), momentum=0.9, clip=1.0, **SGD),
        "head": TrainHead(w, second, lr=0.2, epochs=2, batch_size=9, label_seed=3),
        "edit": Edit(w, other, tau=0.5, mu=1.0, keep=True, **SGD),
        "edit, nothing kept": Edit(w, other, tau=0.5, mu=0.0, keep=False, **SGD),
        "imitate": Train(w, imitate, **SGD, reference=other),
        "npo": Gradient(w, npo, "eval", 1, other),
        "npo with dropout": Gradient(w, npo, "train", 1, other),
        "npo, pseudo": PseudoGradient(w, npo, 0.2, 2, 9, "eval", 1, other),
    }


KINDS = tuple(questions(plain))


def engines(model: Factory) -> list[Federation]:
    data = clients(shape_of(model))
    simulated = [SimulatedFederation(model(), data, workers) for workers in (1, 3)]
    return [*simulated, BytesFederation(model, data)]


@pytest.mark.parametrize("model", [plain, dropping, normed])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_bit_identical_on_every_engine(model: Factory, kind: str) -> None:
    question = questions(model)[kind]
    found = [federation.answers(dict.fromkeys(IDS, question)) for federation in engines(model)]
    for answers, missing in found:
        assert missing == {}
        assert tuple(answers) == IDS
        assert all(serial.same(answers[i], found[0][0][i]) for i in IDS)
    vectors = [_vector(a) for a in found[0][0].values()]
    assert all(not torch.equal(vectors[0], other) for other in vectors[1:])  # everybody has something else to say
    assert all(bool(torch.isfinite(v).all()) for v in vectors)


def _vector(reply: Any) -> Tensor:
    found: Tensor = reply.gradient if isinstance(reply, LossAndGradient) else reply.w
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_comes_back_from_bytes_as_it_was(kind: str) -> None:
    question = questions(plain)[kind]
    assert serial.same(serial.from_bytes(QUESTIONS, serial.to_bytes(question)), question)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", [plain, normed])
def test_what_the_module_held_before_does_not_matter(kind: str, model: Factory) -> None:
    module, question, data = model(), questions(model)[kind], clients(shape_of(model))["c2"]
    first = question.answer(model(), data, "c2")
    Train(start(model), Loss("ce"), 0.9, 3, 5, 1).answer(module, data, "c2")
    assert serial.same(question.answer(module, data, "c2"), first)


@pytest.mark.parametrize(
    ("kind", "tensors", "up"),
    [("within", 2, 1), ("edit", 2, 1), ("imitate", 2, 1), ("npo", 2, 1), ("npo, pseudo", 2, 1)],
)
def test_bytes_of_a_question_with_two_models(kind: str, tensors: int, up: int) -> None:
    federation, n = engines(plain)[0], len(start())
    federation.answers(dict.fromkeys(IDS[:4], questions(plain)[kind]))
    assert (federation.traffic.down, federation.traffic.up) == (4 * 4 * tensors * n, 4 * 4 * up * n)


def test_bytes_of_a_head() -> None:
    federation, n, head = engines(plain)[0], len(start()), 12 * 3 + 3
    federation.answers(dict.fromkeys(IDS[:4], questions(plain)["head"]))
    assert (federation.traffic.down, federation.traffic.up) == (4 * 4 * (n + head), 4 * 4 * head)


@pytest.mark.parametrize("pseudo", [None, Local(0.2, 1, 9)], ids=["full", "pseudo"])
def test_a_reference_is_sent_to_those_who_compare_with_it(pseudo: Local | None) -> None:
    federation, n = engines(plain)[0], len(start())
    objectives = {"c0": Loss("npo"), "c1": Loss("ce"), "c2": Loss("ce")}
    federation.gradients(start(), objectives, pseudo=pseudo, reference=start() + 1)
    assert (federation.traffic.down, federation.traffic.up) == (4 * 4 * n, 3 * 4 * (n + 1))


# A reference -----------------------------------------------------------------------------------------------------


def test_a_gradient_with_a_reference_is_autograds() -> None:
    question = questions(plain)["npo"]
    assert isinstance(question, Gradient)
    x, y = clients()["c2"]["train"]
    module, reference = _loaded(question.w), _loaded(question.reference)
    with torch.no_grad():
        other = reference(x)
    value = Loss("npo", b=0.5)(module(x), y, other).mean()
    wanted = torch.cat([g.reshape(-1) for g in torch.autograd.grad(value, list(module.parameters()))])
    found = question.answer(plain(), clients()["c2"], "c2")
    assert isinstance(found, LossAndGradient)
    assert found.loss == pytest.approx(value.item(), rel=1e-5)
    torch.testing.assert_close(found.gradient, wanted)


def test_the_reference_is_computed_without_dropout() -> None:
    """Its labels are those of eval mode, though the training that follows drops."""
    question = questions(dropping)["imitate"]
    assert isinstance(question, Train)
    x, _ = clients()["c2"]["train"]
    module = dropping().eval()
    _write(module, question.reference)
    labels = module(x).argmax(1)
    by_label = Train(question.w, Loss("ce"), **SGD)
    found = question.answer(dropping(), clients()["c2"], "c2")
    wanted = by_label.answer(dropping(), {"train": (x, labels)}, "c2")
    assert serial.same(found, wanted)


def _loaded(w: Tensor | None) -> torch.nn.Module:
    module = plain().eval()
    _write(module, w)
    return module


def _write(module: torch.nn.Module, w: Tensor | None) -> None:
    assert w is not None
    torch.nn.utils.vector_to_parameters(w, module.parameters())


# Faults ----------------------------------------------------------------------------------------------------------


def spoilt(size: int) -> Tensor:
    w = torch.zeros(size)
    w[2] = math.nan
    return w


N, HEAD = len(start()), 12 * 3 + 3


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Failure("no answer in time"), "no answer in time"),
        (Trained(spoilt(N), 9), "not finite"),
        (Trained(torch.zeros(HEAD), 9), f"shape ({HEAD},), not ({N},)"),
        (Trained(torch.zeros(N), 0), "trained on 0 samples"),
        (Trained(torch.zeros(N).double(), 9), "torch.float64, not torch.float32"),
        (LossAndGradient(1.0, torch.zeros(N), 1), "answered with LossAndGradient, not Trained"),
        (Evaluated({}), "answered with Evaluated, not Trained"),
        (Trained(torch.zeros(N), None), "size of type NoneType: Input should be a valid integer"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("kind", ["within", "edit", "imitate"])
def test_unusable_models_are_named(kind: str, wrong: Reply, reason: str) -> None:
    federation = FaultyFederation(engines(plain)[0], {"c3": always(wrong)})
    found = federation.models(dict.fromkeys(("c2", "c3", "c4"), questions(plain)[kind]))
    assert found.ids == ("c2", "c4")
    assert found.models.shape == (2, N)
    assert list(found.missing) == ["c3"]
    assert reason in found.missing["c3"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Trained(torch.zeros(N), 9), f"shape ({N},), not ({HEAD},)"),
        (Trained(spoilt(HEAD), 9), "not finite"),
        (Trained(torch.zeros(HEAD), -1), "size -1: Input should be"),
    ],
    ids=["a whole model", "not finite", "no samples"],
)
def test_unusable_heads_are_named(wrong: Reply, reason: str) -> None:
    federation = FaultyFederation(engines(plain)[0], {"c3": always(wrong)})
    answers, missing = federation.answers(dict.fromkeys(("c2", "c3"), questions(plain)["head"]))
    assert tuple(answers) == ("c2",)
    assert reason in missing["c3"]


@pytest.mark.parametrize(("kind", "split"), [("edit", "test"), ("within", "train")])
@pytest.mark.parametrize("engine", [0, 2], ids=["simulated", "bytes"])
def test_a_client_without_the_data_is_named(kind: str, split: str, engine: int) -> None:
    federation: Any = engines(plain)[engine]
    held = clients()
    data = {**held, "c1": {k: v for k, v in held["c1"].items() if k != split}}
    setattr(federation, "clients" if engine == 0 else "_clients", data)
    found = federation.models(dict.fromkeys(("c0", "c1"), questions(plain)[kind]))
    assert found.ids == ("c0",)
    assert split in found.missing["c1"]


def test_a_loss_that_needs_a_reference_and_gets_none_is_a_named_failure() -> None:
    found = engines(plain)[0].gradients(start(), dict.fromkeys(IDS[:2], Loss("npo")))
    assert found.ids == ()
    assert all("needs the logits of a reference model" in reason for reason in found.missing.values())
