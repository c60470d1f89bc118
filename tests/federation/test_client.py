"""A client's answers against the same computed with plain PyTorch."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fupareto import parameters, serial
from fupareto.federation.questions import (
    Answer,
    Compare,
    Evaluate,
    Evaluated,
    Gradient,
    LossAndGradient,
    Losses,
    PseudoGradient,
    Question,
    Signalled,
    Signals,
    Train,
    Trained,
    TrialLosses,
)
from fupareto.federation.request import Splits
from fupareto.parameters import Layout
from fupareto.tasks.losses import Loss
from fupareto.tasks.samples import cut

from .worlds import CLASSES, FEATURES, Factory, clients, dropping, normed, plain, shape_of, start

LOSSES = [Loss("ce"), Loss("mbs"), Loss("uce")]
SGD: dict[str, Any] = {"lr": 0.2, "epochs": 2, "batch_size": 8}  # 28 samples: three batches of 8 and a rest of 4


def splits_of(model: Factory = plain, client: str = "c2") -> Splits:
    return clients(shape_of(model))[client]


def random_vector(size: int) -> Tensor:
    return 0.3 * torch.randn(size, generator=torch.Generator().manual_seed(1))


def other_weights(model: Factory = plain) -> Tensor:
    """Not the weights that the scratch module happens to have."""
    w = start(model)
    w[: Layout.of(model()).trainable] += random_vector(Layout.of(model()).trainable)
    return w


def trained_by_torch(module: nn.Module, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    optimiser = torch.optim.SGD(module.parameters(), lr=SGD["lr"])
    for _ in range(SGD["epochs"]):
        for k in range(0, len(y), SGD["batch_size"]):
            optimiser.zero_grad()
            batch = slice(k, k + SGD["batch_size"])
            torch.autograd.backward(loss(module(x[batch]), y[batch]).mean())
            optimiser.step()
    return parameters.read(module)


def reference(model: Factory, w: Tensor) -> nn.Module:
    module = model()
    parameters.write(module, w)
    return module


@pytest.mark.parametrize("model", [plain, normed])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradient_is_autograds_on_all_data_at_once(model: Factory, loss: Loss) -> None:
    w, splits = other_weights(model), splits_of(model)
    found = Gradient(w, loss).answer(model(), splits, "c2")
    module = reference(model, w).eval()
    x, y = splits["train"]
    value = loss(module(x), y).mean()
    torch.autograd.backward(value)
    wanted = parameters.read_gradient(module, Layout.of(module))
    assert isinstance(found, LossAndGradient)
    assert found.steps == 1
    assert found.loss == pytest.approx(value.item(), rel=1e-5)
    assert wanted.abs().max() > 0
    torch.testing.assert_close(found.gradient, wanted)


def test_gradient_of_data_that_need_several_passes() -> None:
    """Wide samples are cut into batches of 50; 120 of them leave an uneven rest."""
    x = torch.randn(120, 9000, generator=torch.Generator().manual_seed(0))
    y = torch.arange(120) % CLASSES
    seen: list[int] = []
    module = nn.Sequential(nn.Linear(9000, CLASSES))
    module.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    w = parameters.read(module)
    found = Gradient(w, Loss("ce")).answer(module, {"train": (x, y)}, "wide")
    assert seen == [50, 50, 20]
    assert isinstance(found, LossAndGradient)
    value = F.cross_entropy(module(x), y)
    torch.autograd.backward(value)
    torch.testing.assert_close(found.gradient, parameters.read_gradient(module, Layout.of(module)))
    assert found.loss == pytest.approx(value.item(), rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_train_is_torchs_sgd(loss: Loss) -> None:
    w, splits = other_weights(), splits_of()
    found = Train(w, loss, **SGD, seed=0).answer(plain(), splits, "c2")
    assert isinstance(found, Trained)
    assert found.size == len(splits["train"][1])
    torch.testing.assert_close(
        found.w, trained_by_torch(reference(plain, w), splits["train"][0], splits["train"][1], loss)
    )
    assert not torch.allclose(found.w, w, atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_pseudo_gradient_is_the_way_of_torchs_sgd(loss: Loss) -> None:
    w, splits = other_weights(), splits_of()
    found = PseudoGradient(w, loss, **SGD).answer(plain(), splits, "c2")
    assert isinstance(found, LossAndGradient)
    end = trained_by_torch(reference(plain, w), splits["train"][0], splits["train"][1], loss)
    torch.testing.assert_close(found.gradient, (w - end) / SGD["lr"])
    assert found.steps == SGD["epochs"] * 4
    x, y = splits["train"]
    assert found.loss == pytest.approx(loss(reference(plain, w)(x), y).mean().item(), rel=1e-5)


def test_pseudo_gradient_of_one_full_batch_is_the_gradient() -> None:
    w, splits = other_weights(), splits_of()
    full = Gradient(w, Loss("ce")).answer(plain(), splits, "c2")
    pseudo = PseudoGradient(w, Loss("ce"), lr=0.5, epochs=1, batch_size=1000).answer(plain(), splits, "c2")
    assert isinstance(full, LossAndGradient)
    assert isinstance(pseudo, LossAndGradient)
    torch.testing.assert_close(pseudo.gradient, full.gradient, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "question",
    [Gradient(start(normed), Loss("ce"), mode="train"), PseudoGradient(start(normed), Loss("ce"), 0.1, 1, 10)],
    ids=["full", "pseudo"],
)
def test_no_gradient_on_running_statistics(question: Gradient | PseudoGradient) -> None:
    module = normed()
    found = question.answer(module, splits_of(normed), "c2")
    assert isinstance(found, LossAndGradient)
    tail = Layout.of(module).trainable
    assert not torch.equal(parameters.read(module)[tail:], question.w[tail:])  # they did move, locally
    assert not found.gradient[tail:].any()
    assert found.gradient[:tail].any()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_trial_losses_are_those_at_w_minus_step_times_direction(loss: Loss) -> None:
    w, splits, steps = other_weights(), splits_of(), (2.0, 0.5, 0.0)
    direction = random_vector(len(w))
    found = TrialLosses(w, direction, steps, loss).answer(plain(), splits, "c2")
    assert isinstance(found, Losses)
    x, y = splits["train"]
    wanted = [loss(reference(plain, w - step * direction)(x), y).mean().item() for step in steps]
    assert found.losses == pytest.approx(wanted, rel=1e-5)
    assert len(set(found.losses)) == 3


def test_evaluation_counts() -> None:
    x = torch.eye(4)
    y = torch.tensor([0, 1, 2, 0])
    module = nn.Linear(4, 3, bias=False)
    w = torch.tensor([[9.0, 0, 0, 0], [0, 9, 0, 9], [0, 0, 9, 0]]).reshape(-1)  # the last sample is taken for a 1
    splits = {"train": (x, y), "test": (x[:3], y[:3]), "trigger": (x[3:], y[3:])}
    found = Evaluate(w, ("test", "train", "absent")).answer(module, splits, "me")
    assert isinstance(found, Evaluated)
    assert list(found.counts) == ["test", "train"]
    for split, right in (("test", 3), ("train", 3)):
        sx, sy = splits[split]
        counts = found.counts[split]
        assert (counts["samples"], counts["right"]) == (len(sy), right)
        assert counts["loss"] == pytest.approx(F.cross_entropy(module(sx), sy).item(), rel=1e-5)


def test_evaluation_is_without_dropout_and_with_running_statistics() -> None:
    module = normed().train()
    x, y = splits_of(normed)["test"]
    found = Evaluate(start(normed), ("test",)).answer(module, {"test": (x, y)}, "c2")
    assert isinstance(found, Evaluated)
    wanted = F.cross_entropy(normed().eval()(x), y)
    assert found.counts["test"]["loss"] == pytest.approx(wanted.item(), rel=1e-5)


def test_signals_are_those_of_the_first_split_that_is_there() -> None:
    w, splits = other_weights(normed), splits_of(normed)
    module = reference(normed, w).eval()
    found = Signals(w, ("nonmember", "test", "train")).answer(normed().train(), splits, "c2")
    assert isinstance(found, Signalled)
    x, y = splits["test"]
    logits = module(x).detach().double()
    torch.testing.assert_close(found.loss, F.cross_entropy(logits, y, reduction="none"), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.entropy, torch.special.entr(logits.softmax(1)).sum(1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.outputs.exp(), logits.softmax(1).sort(1, descending=True).values)
    with pytest.raises(ValueError, match="no split nonmember or spare"):
        Signals(w, ("nonmember", "spare")).answer(normed(), splits, "c2")


def test_signals_do_not_tell_the_label() -> None:
    """Relabelled by the class that comes second, a sample looks the same to who only sees sorted outputs."""
    w, (x, y) = other_weights(), splits_of()["train"]
    found = Signals(w, ("train",)).answer(plain(), {"train": (x, y)}, "c2")
    other = Signals(w, ("train",)).answer(plain(), {"train": (x, (y + 1) % 3)}, "c2")
    assert torch.equal(found.outputs, other.outputs)
    assert torch.equal(found.entropy, other.entropy)
    assert not any(t.dtype == torch.int64 for t in vars(found).values())


def test_two_models_are_compared_where_the_data_are() -> None:
    w, splits = other_weights(), splits_of()
    same = Compare(w, w, ("member", "train")).answer(plain(), splits, "c2")
    assert (same.divergence, same.disagreement) == (0.0, 0.0)
    apart = Compare(w, start(), ("train",)).answer(plain(), splits, "c2")
    x, y = splits["train"]
    ours, theirs = (reference(plain, vector).eval()(x).argmax(1) for vector in (w, start()))
    assert apart.samples == len(y)
    assert apart.disagreement == pytest.approx(float((ours != theirs).double().mean()))
    assert apart.disagreement > 0
    assert 0 < apart.divergence <= 1


def test_what_the_module_held_before_does_not_matter() -> None:
    module, splits, w = plain(), splits_of(), other_weights()
    for question in questions(w, mode="eval", seed=0):
        fresh = question.answer(plain(), splits, "c2")
        Train(start(), Loss("ce"), 0.9, 3, 5, 1).answer(module, splits, "c2")
        assert serial.same(question.answer(module, splits, "c2"), fresh)


@given(st.integers(1, 60), st.integers(1, 20))
def test_batches_keep_the_order_and_only_a_last_one_of_one_is_merged(samples: int, size: int) -> None:
    x = torch.arange(samples)
    pieces = cut(x, size)
    assert torch.equal(torch.cat(pieces), x)
    lengths = [len(piece) for piece in pieces]
    assert all(length == size for length in lengths[:-1])
    if size > 1 and samples > 1:
        assert 2 <= lengths[-1] <= size + 1
        assert (lengths[-1] == size + 1) == (samples % size == 1 and samples > size)


# Dropout -------------------------------------------------------------------------------------------------------


def questions(w: Tensor, mode: str, seed: int) -> list[Question]:
    loss = Loss("ce")
    return [
        Train(w, loss, **SGD, seed=seed),
        Gradient(w, loss, mode, seed),
        PseudoGradient(w, loss, **SGD, mode=mode, seed=seed),
        TrialLosses(w, w, (0.0, 0.1), loss, mode, seed),
    ]


@pytest.mark.parametrize("kind", range(4), ids=["train", "gradient", "pseudo-gradient", "trial losses"])
def test_dropout_draws_from_the_seed_and_the_client_alone(kind: int) -> None:
    def ask(seed: int, client: str = "c2") -> Answer:
        return questions(start(dropping), "train", seed)[kind].answer(dropping(), splits_of(), client)

    state = torch.get_rng_state()
    first = ask(1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert serial.same(ask(1), first)
    assert not serial.same(ask(2), first)
    assert not serial.same(ask(1, client="c3"), first)


def test_eval_mode_does_not_drop() -> None:
    w = start(dropping)
    one, two = (Gradient(w, Loss("ce"), "eval", seed).answer(dropping(), splits_of(), "c2") for seed in (1, 2))
    assert serial.same(one, two)


def test_before_and_after_a_step_dropout_is_the_same() -> None:
    """Else its noise would decide the line search: at step 0 the trial loss is the loss sent with the gradient."""
    w = start(dropping)
    _, gradient, pseudo, trial = (q.answer(dropping(), splits_of(), "c2") for q in questions(w, "train", seed=4))
    assert isinstance(trial, Losses)
    assert isinstance(gradient, LossAndGradient)
    assert isinstance(pseudo, LossAndGradient)
    assert trial.losses[0] == pseudo.loss == pytest.approx(gradient.loss, rel=1e-6)


def test_dropout_does_not_depend_on_how_threads_interleave() -> None:
    data, w = clients(count=3), start(dropping)
    everything = [(i, q) for i in data for q in questions(w, "train", seed=1)]

    def ask(item: tuple[str, Question]) -> Answer:
        return item[1].answer(dropping(), data[item[0]], item[0])

    alone = [ask(item) for item in everything]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            together = list(pool.map(ask, reversed(everything)))
            assert all(serial.same(a, b) for a, b in zip(alone, reversed(together), strict=True))


def dropped(layer: nn.Module, x: Tensor) -> Tensor:
    """What the layer makes of ``x`` inside a client's answer."""
    seen: list[Tensor] = []
    layer.register_forward_hook(lambda _, inputs, output: seen.append(output.detach().clone()))
    module = nn.Sequential(layer, nn.Flatten(), nn.Linear(x[0].numel(), CLASSES))
    labels = torch.zeros(len(x), dtype=torch.long)
    Gradient(parameters.read(module), Loss("ce"), "train", 5).answer(module, {"train": (x, labels)}, "me")
    return torch.cat(seen)


@pytest.mark.parametrize("inplace", [False, True])
def test_dropout_zeroes_a_fraction_and_scales_the_rest(inplace: bool) -> None:
    out = dropped(nn.Dropout(0.2, inplace=inplace), torch.ones(40, 100))
    assert set(out.flatten().tolist()) == {0.0, 1.25}
    assert out.mean().item() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Dropout1d(0.5), (6, 5)), (nn.Dropout2d(0.5), (6, 5, 5)), (nn.Dropout3d(0.5), (6, 2, 3, 4))],
    ids=["1d", "2d", "3d"],
)
def test_channelwise_dropout_drops_whole_channels(layer: nn.Module, shape: tuple[int, ...]) -> None:
    out = dropped(layer, torch.ones(20, *shape)).flatten(2)
    assert torch.equal(out, out[:, :, :1].expand_as(out))
    assert set(out.flatten().tolist()) == {0.0, 2.0}


def test_dropping_everything_or_nothing() -> None:
    x = torch.ones(4, 8)
    assert not dropped(nn.Dropout(1.0), x).any()
    assert torch.equal(dropped(nn.Dropout(0.0), x), x)


class Functional(nn.Module):
    """Dropout without a dropout module."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES[0], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(F.dropout(x, 0.5, self.training))
        return out


class Attentive(nn.Module):
    """Dropout inside an attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 1, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 2, 4)
        out: Tensor = self.head(self.attention(x, x, x, need_weights=False)[0].flatten(1))
        return out


def alpha() -> nn.Module:
    return nn.Sequential(nn.AlphaDropout(0.5), nn.Linear(FEATURES[0], CLASSES))


@pytest.mark.parametrize(
    "model",
    [
        Functional,
        alpha,
        Attentive,
    ],
)
def test_every_kind_of_dropout_is_seeded(model: Factory) -> None:
    module = model()
    question = Gradient(parameters.read(module), Loss("ce"), "train", 5)
    assert serial.same(question.answer(module, splits_of(), "c2"), question.answer(module, splits_of(), "c2"))
