"""What a network can do: nodes that die, come back, are late, or answer nonsense. The run goes on, and says so."""

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from federation.worlds import FORGET, clients, plain, start
from fupareto import UserError, api
from fupareto.federation import Local, Request
from fupareto.federation.questions import Failure, Losses, Trained, TrialLosses
from fupareto.flower import add_unlearning, client_app, nodes
from fupareto.flower.arrays import array_of
from fupareto.flower.engine import FlowerFederation
from fupareto.flower.records import (
    Envelope,
    answer_records,
    question_records,
    read_answer,
    read_envelope,
)
from fupareto.methods import FedAvg
from fupareto.tasks.losses import Loss
from presets import guard

from .grid import Fault, LocalGrid, app_of, grid_of

CE = Loss("ce")
W = start()
IDS = ("c0", "c1", "c2", "c3", "c4", "c5")
BAD = "c3"
METHOD = guard(rounds=3, recovery_rounds=2, lr=0.3)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MEETING", 0.0)


def federation_of(grid: LocalGrid, **options: Any) -> FlowerFederation:
    return FlowerFederation(grid, plain(), clients=6, **{"timeout": 0.0, "patience": 0.0, **options})


def with_fault(fault: Fault, client: str = BAD) -> tuple[FlowerFederation, LocalGrid]:
    grid = grid_of(plain, clients())
    federation = federation_of(grid)
    grid.of(client).fault = fault
    return federation, grid


def changed(change: Callable[[RecordDict], None]) -> Fault:
    """The reply with something else in it; the question who a node is goes through."""

    def fault(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == nodes.WHO:
            return reply
        content = RecordDict({**reply.content})
        change(content)
        return Message(content, reply_to=message)

    return fault


def arrays(**tensors: torch.Tensor) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content["fupareto.arrays"] = ArrayRecord({name: array_of(t) for name, t in tensors.items()})

    return change


def changed_about(**values: Any) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content["fupareto"] = ConfigRecord({**content.config_records["fupareto"], **values})

    return change


def only(content: RecordDict) -> Callable[[RecordDict], None]:
    def change(old: RecordDict) -> None:
        for key in list(old):
            del old[key]
        old.update(content)

    return change


SPOILT = W.clone()
SPOILT[5] = float("nan")
NONSENSE: dict[str, tuple[Fault, str]] = {
    "nothing at all": (changed(only(RecordDict())), "something malformed"),
    "records of something else": (changed(only(RecordDict({"metrics": ConfigRecord({"a": 1})}))), "malformed"),
    "NaN": (changed(arrays(w=SPOILT)), "numbers that are not finite"),
    "infinite": (changed(arrays(w=W * float("inf"))), "numbers that are not finite"),
    "huge": (changed(arrays(w=torch.full_like(W, 3e38))), r"numbers as large as 3.0e\+38"),
    "huge and negative": (changed(arrays(w=-1e11 * torch.ones_like(W))), r"numbers as large as 1.0e\+11"),
    "beyond float32": (changed(arrays(w=W.double() + 1e300)), "torch.float64, not torch.float32"),
    "a wrong shape": (changed(arrays(w=W[:-1])), "answered with shape"),
    "a wrong type": (changed(arrays(w=W.long())), "torch.int64, not torch.float32"),
    "no array": (changed(lambda content: content.array_records.__delitem__("fupareto.arrays")), "malformed"),
    "an array too many": (changed(arrays(w=W, v=W)), "malformed"),
    "another kind of answer": (
        changed(changed_about(type="Losses", values='{"losses": [1.0]}')),
        "malformed|not Trained",
    ),
    "a kind that there is not": (changed(changed_about(type="os.system")), "malformed"),
    "values that are no JSON": (changed(changed_about(values="{")), "malformed"),
    "no samples": (changed(changed_about(values='{"size": 0}')), "trained on 0 samples"),
    "an answer for another round": (changed(changed_about(round=7)), "answered message 2 of round 7"),
    "an answer to another message": (changed(changed_about(number=1)), "answered message 1 of round 0"),
    "an answer for somebody else": (changed(changed_about(client="c1")), "for client 'c1'"),
    "an error": (
        lambda message, reply: Message(Error(3, "out of memory"), reply_to=message),
        "failed with error 3: out of memory",
    ),
    "silence": (lambda message, reply: None, "did not answer within 0 seconds"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_named_and_everybody_else_goes_on(name: str) -> None:
    fault, words = NONSENSE[name]
    federation, _ = with_fault(fault)
    federation.traffic.up = 0
    federation._numbers = itertools.count(2)
    answer = federation.train_mean(W, IDS, CE, Local(0.1))
    assert set(answer.missing) == {BAD}
    assert re.search(words, answer.missing[BAD]), answer.missing
    others = tuple(i for i in IDS if i != BAD)
    assert answer.ids == others
    clean = federation_of(grid_of(plain, clients())).train_mean(W, others, CE, Local(0.1))
    assert clean.w is not None
    assert answer.w is not None
    assert torch.equal(answer.w, clean.w)
    assert federation.train_mean(W, others, CE, Local(0.1)).missing == {}


def test_a_killed_node_is_named_and_the_run_goes_on() -> None:
    grid = grid_of(plain, clients())
    federation = federation_of(grid)

    def kill(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            grid.stop("c0")

    result = api.unlearn(federation, W, list(FORGET), METHOD, watch=kill, measure_every=0)
    assert [r["missing"] for r in result.rounds] == [{}, {}, *[{"c0": "is not connected"}] * 3]
    summary = result.summary()
    assert summary["missing"] == {"c0": "is not connected"}
    assert summary["status"] == "complete"  # those who must be forgotten were measured


def test_one_that_comes_back_as_another_node_takes_part_again() -> None:
    grid = grid_of(plain, clients())
    federation = federation_of(grid)

    def come_and_go(record: dict[str, Any]) -> None:
        if record["round"] == 1:
            grid.stop("c0", noticed=False)  # the grid goes on listing the dead node
        if record["round"] == 3:
            grid.start(app_of(plain, clients()), {"client-id": "c0"})

    result = api.unlearn(federation, W, list(FORGET), METHOD, watch=come_and_go, measure_every=0)
    missing = [set(r["missing"]) for r in result.rounds]
    assert missing == [set(), {"c0"}, {"c0"}, set(), set()]
    assert result.summary()["missing"] == {}


def test_nobody_takes_the_place_of_a_client_that_answers() -> None:
    grid = grid_of(plain, clients())
    federation = federation_of(grid)
    mine = federation.nodes.of["c0"]
    grid.stop("c5")
    grid.start(app_of(plain, clients()), {"client-id": "c0"})
    assert federation.train(W, IDS, CE, Local(0.1)).missing == {"c5": "is not connected"}
    assert federation.nodes.of["c0"] == mine


def test_one_that_was_late_is_asked_again() -> None:
    late = iter([True])
    federation, _ = with_fault(lambda message, reply: None if next(late, False) else reply)
    assert federation.train(W, IDS, CE, Local(0.1)).missing == {BAD: "did not answer within 0 seconds"}
    assert federation.train(W, IDS, CE, Local(0.1)).missing == {}


def test_when_nobody_is_left_the_run_stops_with_the_reason() -> None:
    grid = grid_of(plain, clients())
    federation = federation_of(grid)

    def kill(record: dict[str, Any]) -> None:
        for i in IDS:
            grid.stop(i)

    with pytest.raises(UserError, match="no client has been connected for 0 seconds, so the run stops"):
        api.unlearn(federation, W, list(FORGET), METHOD, watch=kill)


@pytest.mark.parametrize("who", [FORGET, FORGET[:1]], ids=["all forget clients", "one of two"])
def test_a_forget_client_that_is_gone_is_never_called_forgotten(who: tuple[str, ...]) -> None:
    grid = grid_of(plain, clients())
    federation = federation_of(grid)
    for i in who:
        grid.stop(i)
    result = api.unlearn(federation, W, list(FORGET), METHOD)
    summary = result.summary()
    assert summary["status"] == "unverified"
    assert set(summary["missing"]) == set(who)
    found = result.audit()
    assert not any(c["result"] == "shown" and "forgotten" in c["claim"].lower() for c in found["verdict"]["checks"])
    for i in who:
        assert i in summary["verdict"]


def test_a_users_mistake_is_that_clients_failure() -> None:
    def data(context: Any) -> Any:
        raise FileNotFoundError("no such file: patients.csv")

    grid = grid_of(plain, {i: c for i, c in clients().items() if i != BAD})
    grid.start(client_app(plain, data), {"client-id": BAD})
    answer = federation_of(grid).train(W, IDS, CE, Local(0.1))
    assert answer.missing == {BAD: "FileNotFoundError: no such file: patients.csv"}


def test_data_that_do_not_fit_the_model() -> None:
    x, y = clients()[BAD]["train"]
    grid = grid_of(plain, {i: c for i, c in clients().items() if i != BAD})
    grid.start(client_app(plain, lambda context: ((x, y + 1), (x, y))), {"client-id": BAD})
    missing = federation_of(grid).train(W, IDS, CE, Local(0.1)).missing
    assert "labels from 1 to 3, but the model has 3 outputs" in missing[BAD]


def test_a_stranger_is_left_alone() -> None:
    """A node of somebody else's app answers the question who it is with an error, or not at all."""
    grid = grid_of(plain, clients())
    stranger = ClientApp()

    @stranger.query("client")
    def who(message: Message, context: Any) -> Message:
        return Message(RecordDict({"config": ConfigRecord({"a": 1})}), reply_to=message)

    grid.start(stranger, {})
    federation = federation_of(grid)
    assert federation.ids == IDS


def test_an_app_keeps_its_own_handlers() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        return Message(RecordDict({"config": ConfigRecord({"mine": True})}), reply_to=message)

    held = clients()["c0"]
    add_unlearning(app, plain, lambda context: held)
    grid = LocalGrid()
    number = grid.start(app, {"client-id": "c0"})
    ids = list(grid.push_messages([Message(RecordDict(), number, kind) for kind in ("train", nodes.WHO)]))
    mine, ours = (m.content for m in grid.pull_messages(ids))
    assert mine.config_records["config"]["mine"] is True
    assert ours.config_records["fupareto.here"]["ids"] == ["c0"]


# Records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [Trained(W, 3), Losses((1.0, float("inf"), float("nan"))), Failure("no"), Failure('quotes " and \n')]
)
def test_answers_survive_the_journey(answer: Any) -> None:
    about = Envelope(3, 5, 'a "name"')
    content = answer_records(answer, about)
    assert read_envelope(content) == about
    back = read_answer({type(answer).__name__: type(answer)}, content)
    for field in dataclasses.fields(answer):
        mine, theirs = getattr(answer, field.name), getattr(back, field.name)
        assert torch.equal(mine, theirs) if isinstance(mine, torch.Tensor) else str(mine) == str(theirs)


def test_a_question_leaves_out_what_is_known() -> None:
    question = TrialLosses(W, 2 * W, (0.1,), CE)
    content = question_records(question, Envelope(0, 1, "c0"), Request(classes=(2,)), "fingerprint")
    assert list(content.array_records["fupareto.arrays"]) == ["direction"]


def test_training_with_a_client_that_never_answers() -> None:
    federation, _ = with_fault(lambda message, reply: None)
    result = api.train(federation, W, FedAvg(rounds=2, lr=0.1))
    assert [set(r["missing"]) for r in result.rounds] == [{BAD}, {BAD}]
