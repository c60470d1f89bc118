"""FedAU: the sum of two last layers, the heads' training replayed, and their wrong labels."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import fupareto
from fupareto import parameters
from fupareto.errors import NotApplicable, UserError
from fupareto.federation.history import History, Plan
from fupareto.federation.questions.fedau import wrong_labels
from fupareto.federation.request import Request
from fupareto.methods.fedau import FedAU
from fupareto.methods.finetune import FineTune

from . import blobs
from .spies import TRAINING, Spy, clients, record

W0 = torch.linspace(-2.0, 2.0, 4 * 12 + 12 + 12 * 3 + 3)
START = 4 * 12 + 12  # where the last layer begins
HEADS = {"0": torch.full((39,), 1.0), "1": torch.linspace(0.0, 3.0, 39)}


def prepared(path: Path, heads: dict[str, Tensor]) -> Spy:
    history = History.create(path, Plan(("fedau",), ("0", "1", "2", "3"), rounds=4, heads=tuple(heads)), 0)
    history.keep_heads(3, heads)
    return Spy(clients(), history)


@pytest.mark.parametrize(("forget", "alpha"), [(("0",), 0.9), (("0", "1"), 0.9), (("1",), 0.0), (("1",), 1.0)])
def test_the_last_layer_is_mixed_and_nothing_else_is_touched(
    tmp_path: Path, forget: tuple[str, ...], alpha: float
) -> None:
    spy = prepared(tmp_path, HEADS)
    method = FedAU(recovery_rounds=0, alpha=alpha)
    state = method.step(spy, method.init(spy, W0, Request(forget)))
    second = torch.stack([HEADS[i] for i in forget]).mean(0)
    assert torch.equal(state.w[:START], W0[:START])
    torch.testing.assert_close(state.w[START:], (1 - alpha) * W0[START:] + alpha * second)
    assert state.done
    assert not spy.asked
    assert (spy.traffic.up, spy.traffic.down) == (0, 0)
    assert torch.equal(W0, torch.linspace(-2.0, 2.0, 99))  # not written into


def test_the_last_layer_by_hand(tmp_path: Path) -> None:
    spy = prepared(tmp_path, {"0": torch.full((39,), 10.0)})
    state = FedAU().step(spy, FedAU().init(spy, torch.ones(99), Request(("0",))))
    assert state.w[START:].tolist() == pytest.approx([0.1 + 9.0] * 39)


def test_it_is_one_round_whatever_the_budget(tmp_path: Path) -> None:
    spy = prepared(tmp_path, HEADS)
    method = FedAU(rounds=5, recovery_rounds=2, batch_size=4)
    state = method.step(spy, method.init(spy, W0, Request(("0",))))
    assert (state.stage, state.round) == ("recovered", 1)
    state = method.step(spy, method.step(spy, state))
    assert state.done
    assert spy.who() == {"1", "2", "3"}


def test_a_client_without_a_head_is_refused(tmp_path: Path) -> None:
    spy = prepared(tmp_path / "two", HEADS)
    with pytest.raises(UserError, match=r"no second head was trained for client 2, only for 0, 1; .*--record fedau"):
        FedAU().init(spy, W0, Request(("0", "2")))
    spy = prepared(tmp_path / "none", {})
    with pytest.raises(UserError, match="only for none"):
        FedAU().init(spy, W0, Request(("0",)))


def test_second_heads_serve_no_request_after_another_one(tmp_path: Path) -> None:
    """They were trained with the first heads of the training, which an earlier request has replaced."""
    federation, w0 = clients(), parameters.read(blobs.model())
    fupareto.train(federation, w0, TRAINING, out=tmp_path / "trained", record=["fedau"], measure_every=0)
    method = FineTune(rounds=1, batch_size=4)
    fupareto.unlearn(federation, tmp_path / "trained", ["1"], method, out=tmp_path / "first", measure_every=0)
    assert fupareto.unlearn(federation, tmp_path / "trained", ["0"], "fedau", measure_every=0).rounds
    with pytest.raises(NotApplicable, match="which a later run has changed; forget the clients together"):
        fupareto.unlearn(federation, tmp_path / "first", ["0"], "fedau", measure_every=0)


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_senseless_hyper_parameters_are_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        FedAU(alpha=alpha)


# Training the heads --------------------------------------------------------------------------------------------


def replayed(models: list[Tensor], client: str) -> Tensor:
    """Return the client's second head after the training, from the global model before every round."""
    x, y = blobs.federation().clients[client]["train"]
    wrong = wrong_labels(y, 3, 5, client)
    second = models[0][START:]
    for k, w in enumerate(models[:-1]):
        second = (0.5 * w[START:] + 0.5 * second).requires_grad_()
        hidden = torch.relu(x @ w[:48].view(12, 4).T + w[48:60])  # no dropout: the features are as they are
        lr = TRAINING.lr * TRAINING.decay**k
        for b in range(0, len(y), TRAINING.batch_size):
            batch = slice(b, b + TRAINING.batch_size)
            logits = hidden[batch] @ second[:36].view(3, 12).T + second[36:]
            gradient = torch.autograd.grad(F.cross_entropy(logits, wrong[batch]), second)[0]
            second = (second - lr * gradient).detach().requires_grad_()
    return second.detach()


def test_heads_kept_in_training_are_those_of_a_replay_in_a_few_lines(tmp_path: Path) -> None:
    history, models = record(tmp_path)
    heads = history.heads()
    assert set(heads) == set(blobs.FORGET)
    for i, head in heads.items():
        torch.testing.assert_close(head, replayed(models, i), atol=1e-5, rtol=1e-4)
        assert not torch.allclose(head, models[-1][START:], atol=0.05)


def test_a_second_head_is_wrong_on_its_clients_data(tmp_path: Path) -> None:
    """Mixed in, it makes the model forget: that is what it was trained for."""
    history, models = record(tmp_path)
    spy = Spy(clients(), history)
    method = FedAU(recovery_rounds=0)
    state = method.step(spy, method.init(spy, models[-1], Request(("0",))))
    seen = [spy.evaluate(w, ("0",), ("train",)).accuracy("0", "train") for w in (models[-1], state.w)]
    assert seen[0] is not None
    assert seen[1] is not None
    assert seen[1] < seen[0]


# Wrong labels --------------------------------------------------------------------------------------------------


@given(st.integers(2, 6), st.integers(0, 40), st.integers(0, 2**62), st.text(max_size=4))
def test_wrong_labels_are_wrong_fixed_and_classes(classes: int, size: int, seed: int, client: str) -> None:
    y = torch.arange(size) % classes
    wrong = wrong_labels(y, classes, seed, client)
    assert wrong.shape == y.shape
    assert bool((wrong != y).all())
    assert bool(((wrong >= 0) & (wrong < classes)).all())
    assert torch.equal(wrong, wrong_labels(y, classes, seed, client))


def test_wrong_labels_are_uniform_and_the_clients_own() -> None:
    y = torch.zeros(6000, dtype=torch.long)
    wrong = wrong_labels(y, 4, 0, "a")
    shares = torch.bincount(wrong, minlength=4) / len(y)
    assert shares[0] == 0
    assert shares[1:].tolist() == pytest.approx([1 / 3] * 3, abs=0.03)
    assert not torch.equal(wrong, wrong_labels(y, 4, 0, "b"))
    assert not torch.equal(wrong, wrong_labels(y, 4, 1, "a"))


def test_the_features_are_those_that_enter_the_last_layer() -> None:
    """The replay above reads them off the vector; here, once more, off the module."""
    module = blobs.model().eval()
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    seen, logits = parameters.features(module, x)
    torch.testing.assert_close(seen, torch.relu(module[0](x)))  # type: ignore[index]
    torch.testing.assert_close(logits, module(x))
