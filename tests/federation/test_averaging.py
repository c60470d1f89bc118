"""Averages that one client cannot take over, and that are the plain mean where nobody tries."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fupareto.federation import Federation, Local, Request
from fupareto.federation.averaging import FAR_LENGTH, FAR_SIZE, Claims, coordinatewise, weighted
from fupareto.federation.questions import Question, Trained
from fupareto.methods import FedAvg, Method
from fupareto.methods.registry import find
from fupareto.tasks.losses import Loss

from .engines import BytesFederation, Fault, FaultyFederation, Reply
from .worlds import FORGET, clients, plain, start, world

CE = Loss("ce")
W = start()
IDS = ("c0", "c1", "c2", "c3", "c4", "c5")
LIAR = "c5"


def times(factor: float) -> Fault:
    def fault(question: Question, reply: Reply) -> Reply:
        if not isinstance(reply, Trained):
            return reply
        base: Tensor = question.w  # type: ignore[attr-defined]
        return Trained(base + factor * (reply.w - base), reply.size)

    return fault


def claiming(size: int) -> Fault:
    return lambda question, reply: Trained(reply.w, size) if isinstance(reply, Trained) else reply


ATTACKS = {"minus a hundred times its update": times(-100.0), "10^12 samples": claiming(10**12)}


def federations(fault: Fault) -> list[Federation]:
    return [FaultyFederation(inner, {LIAR: fault}) for inner in (world(), BytesFederation(plain, clients()))]


def accuracy(w: Tensor) -> float:
    found = world().evaluate(w, IDS, ("test",))
    return float(np.mean([found.accuracy(i, "test") for i in IDS if i not in ("c1", LIAR)]))


def trained(federation: Federation, **options: Any) -> tuple[Tensor, dict[str, Any]]:
    method = FedAvg(rounds=5, lr=0.5, batch_size=10, **options)
    state = method.init(federation, W, None)
    while not state.done:
        state = method.step(federation, state)
    return state.w, state.record


@pytest.mark.parametrize("fault", ATTACKS.values(), ids=ATTACKS)
def test_one_client_does_not_ruin_a_training(fault: Fault) -> None:
    honest, _ = trained(world())
    assert accuracy(honest) > 0.95
    for federation in federations(fault):
        w, record = trained(federation)
        assert accuracy(w) > 0.9
        assert list(record["limited"]) == [LIAR]
        assert "claims 1,000,000,000,000 samples" in record["limited"][LIAR] or "update of length" in str(record)


@pytest.mark.parametrize("aggregation", ["trimmed", "median"])
@pytest.mark.parametrize("factor", [-100.0, -0.9 * FAR_LENGTH])
def test_other_means_stand_what_the_limit_lets_through(aggregation: Any, factor: float) -> None:
    for federation in federations(times(factor)):
        assert accuracy(trained(federation, aggregation=aggregation)[0]) > 0.8


def test_honest_clients_get_the_plain_mean_bit_for_bit() -> None:
    for federation in (world(), BytesFederation(plain, clients())):
        found = federation.train_mean(W, IDS, CE, Local(0.5, 3, 10))
        models = world().train(W, IDS, CE, Local(0.5, 3, 10))
        total = torch.zeros(len(W), dtype=torch.float64)
        for w, size in zip(models.models, models.sizes, strict=True):
            total.add_(w, alpha=size)
        assert found.w is not None
        assert torch.equal(found.w, total.div_(sum(models.sizes)).float())
        assert found.limited == {}
        assert found.told == {"missing": {}}


@pytest.mark.parametrize("name", ["fugas", "renew", "retrain", "finetune", "mode"])
def test_every_method_that_averages_is_protected_and_says_so(name: str) -> None:
    options = {"rounds": 1, "recovery_rounds": 1, "training_rounds": 10, "lr": 0.1, "degrading": 1.0}
    known = find(name, {})
    method: Method = find(name, {k: v for k, v in options.items() if hasattr(known, k)})
    states = []
    for federation in (world(), FaultyFederation(world(), {LIAR: times(-1e6)})):
        state = method.init(federation, W, Request(FORGET))
        limited = []
        while not state.done:
            state = method.step(federation, state)
            limited.append(state.record.get("limited", {}))
        states.append((state.w, limited))
    (honest, nobody), (attacked, somebody) = states
    assert not any(nobody)
    assert {LIAR} in [set(entry) for entry in somebody]
    assert float((attacked - honest).norm()) < 5 * float((honest - W).norm()) + 1.0


@pytest.mark.parametrize("name", ["fugas", "fedosd", "fededitor", "renew", "retrain", "finetune", "mode"])
def test_the_mean_of_every_method_can_be_chosen(name: str) -> None:
    options = {"rounds": 1, "recovery_rounds": 1, "training_rounds": 5, "lr": 0.1}
    options = {key: value for key, value in options.items() if hasattr(find(name, {}), key)}
    found = []
    for aggregation in ("mean", "trimmed", "median"):
        chosen = {"aggregation": aggregation}
        method = find(name, {"training": {"rounds": 5, **chosen}} if name == "renew" else {**options, **chosen})
        state = method.init(world(), W, Request(FORGET))
        while not state.done:
            state = method.step(world(), state)
        found.append(state.w)
    assert not any(torch.equal(found[a], found[b]) for a, b in ((0, 1), (0, 2)))


def test_a_recorded_training_with_a_liar_asks_once_more_in_this_process_only() -> None:
    asked: list[int] = []

    class Counting(FaultyFederation):
        def ask(self, questions: Any) -> Any:
            asked.append(len(questions))
            return super().ask(questions)

    for inner, expected in ((world(), [6, 6]), (BytesFederation(plain, clients()), [6])):
        asked.clear()
        federation = Counting(inner, {LIAR: times(-100.0)})
        federation.holds_answers = inner.holds_answers
        federation.train_mean(W, IDS, CE, Local(0.1))
        assert asked == expected


@settings(deadline=None, max_examples=60)
@given(count=st.integers(1, 9), size=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_coordinatewise_means_are_those_of_scipy(count: int, size: int, seed: int) -> None:
    models = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    assert np.allclose(coordinatewise(models, "median"), np.median(models.double().numpy(), axis=0), atol=1e-6)
    cut = min(int(0.2 * count + 0.5), (count - 1) // 2)
    trimmed = stats.trim_mean(np.sort(models.double().numpy(), axis=0), cut / count, axis=0)
    assert np.allclose(coordinatewise(models, "trimmed"), trimmed, atol=1e-6)


@settings(deadline=None, max_examples=100)
@given(
    sizes=st.lists(st.integers(1, 10**12), min_size=1, max_size=9),
    lengths=st.lists(st.floats(0, 1e10), min_size=9, max_size=9),
)
def test_no_minority_moves_the_mean_far(sizes: list[int], lengths: list[float]) -> None:
    base, claims, models = torch.zeros(3), Claims(), []
    for k, size in enumerate(sizes):
        w = torch.zeros(3)
        w[k % 3] = lengths[k]
        claims.add(str(k), size, w - base)
        models.append((str(k), w))
    mean = weighted(models, base, claims)
    if len(sizes) >= 3 and np.median(list(claims.lengths.values())) > 0:
        assert float(mean.norm()) <= FAR_LENGTH * np.median(list(claims.lengths.values())) * (1 + 1e-6)
        assert max(claims.weights.values()) <= FAR_SIZE * np.median(sizes)
