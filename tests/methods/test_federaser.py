"""FedEraser against numbers worked out by hand: two layers, two clients who stay and one who leaves."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fupareto import seal
from fupareto.errors import UserError
from fupareto.federation.history import History, Plan
from fupareto.federation.questions import Train
from fupareto.federation.request import Request
from fupareto.methods.federaser import FedEraser, calibrated
from fupareto.methods.staged import StagedState
from fupareto.parameters import Layout

from .quadratics import Client, QuadraticFederation, linear, vector, walk
from .spies import Spy

CLIENTS = ("a", "u", "b")
W0 = vector(9.0, 9.0, 9.0)
BEFORE = {0: vector(1.0, 1.0, 1.0), 2: vector(2.0, 0.0, 0.0)}
LOCAL = {  # round -> client -> its model; u's would change every mean
    0: {"a": vector(0.0, 1.0, 2.0), "u": vector(50.0, 50.0, 50.0), "b": vector(2.0, 3.0, 4.0)},
    2: {"a": vector(6.0, 0.0, 1.0), "u": vector(50.0, 50.0, 50.0), "b": vector(4.0, 8.0, -7.0)},
}
SLOPES = {"a": [1.0, 6.0, 1.0], "u": [7.0, 7.0, 7.0], "b": [7.0, 0.0, 3.0]}
METHOD = FedEraser(rounds=2, recovery_rounds=0, lr=0.5, decay=0.5)


def federation(path: Path, without: tuple[tuple[int, str], ...] = (), samples: int = 1) -> Spy:
    """Layers of two and one numbers; every local step moves a client by its slope. ``b`` has more samples."""
    clients = {i: Client([linear(s)] * (samples if i == "b" else 1), [linear(s)]) for i, s in SLOPES.items()}
    found = QuadraticFederation(3, **clients)
    found.layout = Layout(("one", "two"), ((2,), (1,)), 3, 3)
    history = History.create(path, Plan(("federaser",), CLIENTS, rounds=4, keep=2), 0)
    for round_, models in LOCAL.items():
        history.keep_before(round_, BEFORE[round_])
        for i, w in models.items():
            if (round_, i) not in without:
                history.keep_local(round_, i, w, 70 if i == "b" else 10)
        history.keep_clients(round_, [i for i in models if (round_, i) not in without])
    return Spy(found, history)


def first(clients: Spy, method: FedEraser = METHOD) -> StagedState:
    return method.step(clients, method.init(clients, W0, Request(("u",))))  # type: ignore[no-any-return]


def test_the_first_round_is_the_plain_mean_of_the_stored_models_of_those_who_stay(tmp_path: Path) -> None:
    clients = federation(tmp_path)
    state = first(clients)
    assert state.w.tolist() == [1.0, 2.0, 3.0]  # ((0, 1, 2) + (2, 3, 4)) / 2, though b has seven times the samples
    assert state.record["replayed"] == 0
    assert not clients.asked


def test_the_calibrated_update_by_hand_layer_by_layer(tmp_path: Path) -> None:
    clients = federation(tmp_path)
    state = METHOD.step(clients, first(clients))
    # recorded: mean (5, 4, -3) minus (2, 0, 0), so a step of length 5 in the first layer and 3 in the second
    # fresh: rate 0.5 · 0.5² against the mean slope (4, 3, 2), a direction (-0.8, -0.6) and (-1)
    assert state.w.tolist() == pytest.approx([1.0 - 4.0, 2.0 - 3.0, 3.0 - 3.0])
    assert (state.record["replayed"], state.record["lr"], state.done) == (2, 0.125, True)
    asked = [(i, q) for i, q in clients.asked if isinstance(q, Train)]
    assert [i for i, _ in asked] == ["a", "b"]
    for _, question in asked:
        assert question.w.tolist() == [1.0, 2.0, 3.0]
        assert (question.lr, question.loss.name, question.epochs) == (0.125, "ce", 1)


def test_the_fresh_mean_is_unweighted_too(tmp_path: Path) -> None:
    plain, heavy = federation(tmp_path / "1"), federation(tmp_path / "2", samples=5)
    assert torch.equal(METHOD.step(plain, first(plain)).w, METHOD.step(heavy, first(heavy)).w)


def test_the_length_is_the_recorded_updates_and_not_the_fresh_ones(tmp_path: Path) -> None:
    """The rate and the epochs change how far the clients go, and only that: slopes are constant here."""
    clients = federation(tmp_path)
    faster = FedEraser(rounds=2, recovery_rounds=0, lr=0.05, decay=0.5, epochs=3)
    torch.testing.assert_close(faster.step(clients, first(clients)).w, METHOD.step(clients, first(clients)).w)


def test_a_layer_whose_fresh_update_vanishes_stays() -> None:
    old = {"one": vector(3.0, 4.0), "two": vector(2.0)}
    new = {"one": vector(0.0, 0.0), "two": vector(-0.1)}
    found = calibrated(old, new)
    assert found["one"].tolist() == [0.0, 0.0]
    assert found["two"].tolist() == pytest.approx([-2.0])


def test_a_client_that_was_away_in_training_counts_only_where_it_was_there(tmp_path: Path) -> None:
    clients = federation(tmp_path, without=((0, "a"), (2, "b")))
    state = first(clients)
    assert state.w.tolist() == [2.0, 3.0, 4.0]  # b alone
    state = METHOD.step(clients, state)
    # a alone: (6, 0, 1) - (2, 0, 0), lengths 4 and 1; the fresh direction is of both
    assert state.w.tolist() == pytest.approx([2.0 - 4 * 0.8, 3.0 - 4 * 0.6, 4.0 - 1.0])


def test_a_client_that_is_away_now_is_named_and_the_others_give_the_direction(tmp_path: Path) -> None:
    clients = federation(tmp_path)
    assert isinstance(clients.inner, QuadraticFederation)
    clients.inner.clients = {**clients.inner.clients, "a": Client([linear([4.0, 3.0, -1.0])], [])}
    clients.absent = {"b"}
    state = METHOD.step(clients, first(clients))
    assert state.w.tolist() == pytest.approx([1.0 - 5 * 0.8, 2.0 - 5 * 0.6, 3.0 + 3.0])
    assert state.record["missing"] == {"b": "absent"}


def test_nobody_now_and_nobody_then(tmp_path: Path) -> None:
    clients = federation(tmp_path / "now")
    clients.absent = {"a", "b"}
    before = first(clients)
    after = METHOD.step(clients, before)
    assert torch.equal(after.w, before.w)
    assert after.record["step"] is None
    assert after.record["missing"] == {"a": "absent", "b": "absent"}
    clients = federation(tmp_path / "then", without=((2, "a"), (2, "b")))
    assert torch.equal(METHOD.step(clients, before).w, before.w)
    assert not clients.asked


def test_without_any_stored_model_of_the_first_round_it_starts_from_the_recorded_initial_model(tmp_path: Path) -> None:
    """Never from w0, which knows those who leave."""
    clients = federation(tmp_path, without=((0, "a"), (0, "b")))
    assert torch.equal(first(clients).w, BEFORE[0])


def test_it_ends_with_what_was_kept_or_with_its_budget(tmp_path: Path) -> None:
    clients = federation(tmp_path)
    states = walk(FedEraser(rounds=50, recovery_rounds=3, lr=0.5), clients, W0, ["u"])
    assert [s.record["replayed"] for s in states[1:3]] == [0, 2]
    assert [s.phase for s in states[1:]] == ["replay"] * 2 + ["recover"] * 3
    states = walk(FedEraser(rounds=1, recovery_rounds=1, lr=0.5), clients, W0, ["u"])
    assert [s.phase for s in states[1:]] == ["replay", "recover"]


def test_several_clients_leave_together(tmp_path: Path) -> None:
    clients = federation(tmp_path)
    state = METHOD.init(clients, W0, Request(("u", "a")))
    state = METHOD.step(clients, state)
    assert state.w.tolist() == LOCAL[0]["b"].tolist()
    METHOD.step(clients, state)
    assert {i for i, _ in clients.asked} == {"b"}


def test_w0_is_where_recovery_measures_from_but_not_where_unlearning_starts(tmp_path: Path) -> None:
    def end(w0: Tensor) -> Tensor:
        final: Tensor = walk(METHOD, federation(tmp_path), w0, ["u"])[-1].w
        return final

    assert torch.equal(end(W0), end(-W0))


def test_a_missing_or_damaged_model_is_the_users_error(tmp_path: Path) -> None:
    clients = federation(tmp_path)
    (tmp_path / "federaser/00002/000.safetensors").write_bytes(b"half")
    state = first(clients)
    with pytest.raises(UserError, match=r"00002/000\.safetensors is missing or damaged.*--record"):
        METHOD.step(clients, state)
    (tmp_path / "federaser/00002/before.safetensors").unlink()
    with pytest.raises(UserError, match=r"before\.safetensors is missing or damaged"):
        METHOD.step(clients, state)


def test_fewer_rounds_than_were_kept_are_spread_over_the_training(tmp_path: Path) -> None:
    clients = federation(tmp_path)
    index = seal.check_document(json.loads((tmp_path / "index.json").read_text()))
    (tmp_path / "index.json").write_bytes(seal.document({**index, "keep": 4}))  # rounds 1 and 3 are not needed
    assert [s.record["replayed"] for s in walk(METHOD, clients, W0, ["u"])[1:]] == [0, 2]


@pytest.mark.parametrize(("rho", "epochs", "worked"), [(0.5, 1, 1), (0.5, 3, 2), (1.0, 3, 3)])
def test_calibration_takes_a_share_of_the_epochs(tmp_path: Path, rho: float, epochs: int, worked: int) -> None:
    clients = federation(tmp_path)
    method = FedEraser(rounds=2, recovery_rounds=0, lr=0.5, decay=0.5, rho=rho, epochs=epochs)
    method.step(clients, first(clients, method))
    assert {q.epochs for _, q in clients.asked if isinstance(q, Train)} == {worked}
