"""FedEditor: centroids and targets by hand, one edit against a few lines of autograd."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fupareto import parameters
from fupareto.federation import SimulatedFederation
from fupareto.federation.questions import Edit
from fupareto.federation.questions.fededitor import class_centroids, nearest_wrong
from fupareto.federation.request import Request
from fupareto.methods.fededitor import FedEditor

from .spies import Spy, clients

Samples = tuple[Tensor, Tensor]


def net() -> nn.Module:
    """Features are a plain linear map, so that they can be read off; two features, three classes."""
    generator = torch.Generator().manual_seed(4)
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 3))
    parameters.write(module, 0.7 * torch.randn(17, generator=generator))
    return module


def draw(seed: int, size: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, generator=generator), torch.randint(3, (size,), generator=generator)


W0, W = parameters.read(net()), parameters.read(net()) + 0.1
FORGET, HELD = draw(0, 5), draw(1, 12)
OPTIONS: dict[str, Any] = {
    "tau": 0.5,
    "mu": 1.0,
    "keep": True,
    "lr": 0.2,
    "epochs": 1,
    "batch_size": 5,
    "seed": 0,
}


def asked(**changes: Any) -> Edit:
    return Edit(W, W0, **{**OPTIONS, **changes})


# Targets -------------------------------------------------------------------------------------------------------


def test_the_nearest_wrong_centroid_on_features_made_by_hand() -> None:
    centroids = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 10.0]])
    known = torch.tensor([2, 5, 7])
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [3.0, 0.0], [0.0, 9.0], [0.0, 4.0]])
    labels = torch.tensor([2, 5, 9, 7, 9])
    # own class 2 left out: 5; 2; 5 (nothing is left out, 9 has no centroid); 7 left out: 2; 2
    assert nearest_wrong(features, labels, known, centroids).tolist() == [1, 0, 1, 0, 0]


def test_a_sample_whose_only_known_class_is_its_own_has_no_target() -> None:
    features, labels = torch.zeros(2, 2), torch.tensor([3, 4])
    assert nearest_wrong(features, labels, torch.tensor([3]), torch.ones(1, 2)).tolist() == [-1, 0]


def test_centroids_are_the_means_of_the_features_of_held_out_samples() -> None:
    module = nn.Sequential(nn.Identity(), nn.Linear(2, 9))  # features are the inputs
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]])
    known, centroids = class_centroids(module, x, torch.tensor([8, 8, 1]))
    assert known.tolist() == [1, 8]
    assert centroids.tolist() == [[10.0, 20.0], [2.0, 3.0]]


# One edit ------------------------------------------------------------------------------------------------------


def by_hand(asked: Edit, forget: Samples, held: Samples) -> Tensor:
    """One step from ``w``, in the words of the description: one loss, one autograd, and a list of targets."""

    def run(w: Tensor, x: Tensor) -> Samples:
        a, b, c, d = w[:6].view(2, 3), w[6:8], w[8:14].view(3, 2), w[14:]
        phi = torch.tanh(x @ a.T + b)
        return phi, phi @ c.T + d

    (x, y), (held_x, held_y) = forget, held
    old, old_logits = run(asked.reference, held_x)
    centroids = {k: old[held_y == k].mean(0) for k in sorted(set(held_y.tolist()))}
    phi0 = run(asked.reference, x)[0]
    w = asked.w.clone().requires_grad_()
    phi = run(w, x)[0]
    losses = []
    for k in range(len(y)):
        wrong = [c for c in centroids if c != int(y[k])]
        target = min(wrong, key=lambda c: float((phi0[k] - centroids[c]).norm()))
        scores = {c: F.cosine_similarity(phi[k], centroids[c], dim=0) / asked.tau for c in centroids}
        losses.append(torch.logsumexp(torch.stack(list(scores.values())), 0) - scores[target])
    loss = torch.stack(losses).mean() + asked.mu / 2 * ((w - asked.reference) ** 2).sum()
    if asked.keep:
        size = asked.batch_size
        p, q = old_logits[:size].softmax(1), run(w, held_x[:size])[1].softmax(1)
        loss = loss + (p * (p / q).log()).sum(1).mean()
    return asked.w - asked.lr * torch.autograd.grad(loss, w)[0]


@pytest.mark.parametrize(
    "changes", [{}, {"keep": False}, {"mu": 0.0}, {"tau": 0.1, "lr": 1.0}], ids=["all", "no keeping", "free", "sharp"]
)
def test_one_edit_is_one_step_down_alignment_keeping_and_distance(changes: dict[str, Any]) -> None:
    question = asked(**changes)
    found = question.answer(net(), {"train": FORGET, "test": HELD}, "u").w
    torch.testing.assert_close(found, by_hand(question, FORGET, HELD), atol=1e-6, rtol=1e-4)
    assert not torch.allclose(found, W, atol=1e-3)


def test_batches_and_epochs_follow_each_other_and_targets_stay_the_references() -> None:
    """Five samples in batches of 2 and 3, twice; held-out batches of 2 go round and round."""
    w = W
    held_batches = [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 8)]
    for k in range(4):
        batch = slice(2, 5) if k % 2 else slice(0, 2)
        part = (FORGET[0][batch], FORGET[1][batch])
        rolled = held_batches[k]  # keeping sees these; centroids come from all held-out samples
        order = [*range(rolled.start, rolled.stop), *(r for r in range(12) if not rolled.start <= r < rolled.stop)]
        held = (HELD[0][order], HELD[1][order])
        w = by_hand(Edit(w, W0, **{**OPTIONS, "batch_size": 2}), part, held)
    found = asked(batch_size=2, epochs=2).answer(net(), {"train": FORGET, "test": HELD}, "u").w
    torch.testing.assert_close(found, w, atol=1e-5, rtol=1e-3)


def test_samples_without_a_target_are_left_out() -> None:
    held = (HELD[0], torch.full((12,), 2))  # one known class only
    x, _ = FORGET
    mixed = (x, torch.tensor([2, 0, 2, 2, 1]))
    others = (x[[1, 4]], torch.tensor([0, 1]))
    found = asked().answer(net(), {"train": mixed, "test": held}, "u").w
    assert torch.equal(found, asked().answer(net(), {"train": others, "test": held}, "u").w)
    nothing = asked().answer(net(), {"train": (x, torch.full((5,), 2)), "test": held}, "u").w
    assert torch.equal(nothing, W)  # nowhere to go: the model is sent back as it came


# The method ----------------------------------------------------------------------------------------------------


def test_a_round_is_the_plain_mean_of_the_leaving_clients_edits() -> None:
    data = {
        i: {"train": draw(k, n), "test": draw(9 + k, 8)} for k, (i, n) in enumerate({"u": 4, "a": 6, "v": 9}.items())
    }
    spy = Spy(SimulatedFederation(net(), data, workers=1))
    method = FedEditor(rounds=2, recovery_rounds=0, lr=0.1, tau=0.3, mu=0.5, batch_size=5, decay=0.5)
    first = method.step(spy, method.init(spy, W0, Request(("u", "v")), seed=3))
    assert spy.who() == {"u", "v"}
    seed = {q.seed for _, q in spy.asked if isinstance(q, Edit)}
    question = Edit(W0, W0, 0.3, 0.5, True, 0.1, 1, 5, *seed)
    edits = [question.answer(net(), data[i], i).w for i in ("u", "v")]
    torch.testing.assert_close(first.w, (edits[0] + edits[1]) / 2)
    spy.asked.clear()
    method.step(spy, first)
    for _, q in spy.asked:
        assert isinstance(q, Edit)
        assert torch.equal(q.w, first.w)
        assert torch.equal(q.reference, W0)
        assert q.lr == pytest.approx(0.05)


def test_a_client_without_held_out_data_is_named() -> None:
    inner = clients()
    inner.clients = {**inner.clients, "1": {"train": inner.clients["1"]["train"]}}
    w0 = inner.fresh(0)
    method = FedEditor(rounds=1, recovery_rounds=0, batch_size=4)
    state = method.step(inner, method.init(inner, w0, Request(("0", "1"))))
    assert list(state.record["missing"]) == ["1"]
    assert "test" in state.record["missing"]["1"]


@pytest.mark.parametrize("options", [{"tau": 0.0}, {"mu": -1.0}])
def test_senseless_hyper_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        FedEditor(**options)  # type: ignore[arg-type]
