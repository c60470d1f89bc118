"""Every method computes over Flower what it computes in one process, and no more crosses the network than must."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from torch import Tensor, nn

from federation.worlds import FORGET, Factory, clients, dropping, normed, plain, shape_of, start
from fupareto import UserError, api, serial
from fupareto.federation import Federation, Local, Request, SimulatedFederation
from fupareto.federation.collected import Trial
from fupareto.federation.history import History
from fupareto.federation.recording import WithHistory
from fupareto.federation.request import Splits
from fupareto.federation.wrappers import KeepingAnswers
from fupareto.flower import client_app, engine
from fupareto.flower.engine import FlowerFederation
from fupareto.flower.records import here_records
from fupareto.methods import FedAvg, FUPareto, Method, State
from fupareto.methods.registry import METHODS, find
from fupareto.run import loop
from fupareto.tasks.losses import Loss
from presets import guard

from .grid import LocalGrid, grid_of

CE = Loss("ce")


def flower(model: Factory = plain, **options: Any) -> tuple[FlowerFederation, LocalGrid]:
    grid = grid_of(model, clients(shape_of(model)))
    return FlowerFederation(grid, model(), clients=6, **options), grid


def simulated(model: Factory = plain) -> SimulatedFederation:
    return SimulatedFederation(model(), clients(shape_of(model)), workers=1)


def states(method: Method, federation: Federation, w: Tensor, request: Request | None) -> list[State]:
    found = [method.init(federation, w, request, seed=11)]
    while not found[-1].done:
        found.append(method.step(federation.at(found[-1].round), found[-1]))
    return found


def assert_same(method: Method, model: Factory, request: Request | None, w: Tensor) -> None:
    over_flower, _ = flower(model)
    here = simulated(model)
    if request is not None:
        here, over_flower = here.divided(request), over_flower.divided(request)
    assert over_flower.ids == here.ids
    mine, theirs = states(method, here, w, request), states(method, over_flower, w, request)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.record == b.record
        assert serial.same(a, b)
    assert (here.traffic.up) == (over_flower.traffic.up) or isinstance(method, FUPareto)  # it searches step by step


@pytest.mark.parametrize("model", [plain, dropping, normed])
def test_training_is_bit_identical(model: Factory) -> None:
    assert_same(FedAvg(rounds=3, lr=0.1, epochs=2, batch_size=9), model, None, start(model))


@pytest.mark.parametrize("model", [plain, dropping, normed])
@pytest.mark.parametrize("options", [{}, {"gradient": "pseudo", "batch_size": 9, "search_mode": "train"}])
def test_fupareto_is_bit_identical(model: Factory, options: dict[str, Any]) -> None:
    method = guard(rounds=5, recovery_rounds=2, lr=1.0, s=2, **options)
    assert_same(method, model, Request(FORGET), start(model))


def test_a_share_of_the_clients_in_every_round_is_bit_identical() -> None:
    assert_same(FedAvg(rounds=4, lr=0.1, batch_size=9, participation=0.5), plain, None, start())
    assert_same(guard(rounds=5, recovery_rounds=2, lr=1.0, participation=0.5), plain, Request(FORGET), start())


def test_who_is_not_drawn_hears_nothing() -> None:
    federation, grid = flower()
    runs: list[tuple[Method, Request | None]] = [
        (FedAvg(rounds=3, participation=0.3), None),
        (guard(rounds=3, participation=0.3), Request(FORGET)),
    ]
    for method, request in runs:
        state = method.init(federation, start(), request, seed=2)
        for _ in range(2):
            before = len(grid.sent)
            state = method.step(federation, state)
            asked = {*state.record["sampled"], *state.forget}
            assert {s.client for s in grid.sent[before:]} == asked < set(federation.ids)


@pytest.mark.parametrize("request_", [Request(samples={"c1": (0, 3, 5), "c4": (2,)}), Request(classes=(1,))])
def test_samples_and_classes_too(request_: Request) -> None:
    assert_same(guard(rounds=3, recovery_rounds=1, lr=0.3), plain, request_, start())


@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("fedavg", "fupareto")])
def test_every_method_is_bit_identical(name: str, tmp_path: Path) -> None:
    options = {"rounds": 1 if name == "fedau" else 2, "recovery_rounds": 1, "training_rounds": 10}
    method = find(name, {key: value for key, value in options.items() if hasattr(METHODS[name], key)})
    results = []
    for place, federation in (("here", simulated()), ("flower", flower()[0])):
        training = FedAvg(rounds=3, lr=0.1, batch_size=9) if name != "ridge" else method
        parts = ("federaser", "fupga", "fedau", "rewind") if name != "ridge" else ("ridge",)
        trained = api.train(federation, start(), training, out=tmp_path / place, record=parts, keep=2)
        w0 = federation.layout.flat(trained.model("initial"))
        history = History.open(tmp_path / place / "history")
        assert history is not None
        results.append(api.unlearn(WithHistory(federation, history), w0, list(FORGET), method))
    for stage in ("initial", "unlearned", "recovered"):
        mine, theirs = (r.outcome.model(stage) for r in results)
        assert (mine is None) == (theirs is None)
        assert mine is None or theirs is None or torch.equal(mine, theirs)
    assert results[0].summary()["stages"] == results[1].summary()["stages"]


def test_names_are_in_their_natural_order() -> None:
    grid = grid_of(plain, dict.fromkeys(["10", "9", "b", "2"], clients()["c0"]))
    assert FlowerFederation(grid, plain(), clients=4).ids == ("2", "9", "10", "b")


# What crosses the network ----------------------------------------------------------------------------------------


def test_one_message_carries_a_whole_line_search() -> None:
    federation, grid = flower()
    w, ids = start(), dict.fromkeys(federation.ids, CE)
    for steps in (1, 7):
        federation.gradients(w, ids)
        before = len(grid.sent)
        list(federation.losses(Trial(w, w, tuple(0.5**k for k in range(steps))), ids, {}))
        assert grid.kinds(before) == ["query.loss"] * 6


def test_the_model_of_a_round_is_sent_once() -> None:
    federation, grid = flower(large)
    w = start(large)
    n = 4 * len(w)
    ids = dict.fromkeys(federation.ids, CE)
    federation.gradients(w, ids)
    before = len(grid.sent)
    list(federation.losses(Trial(w, 2 * w, (0.1, 0.2)), ids, {}))
    assert all(n < s.down < 1.1 * n for s in grid.sent[before:])


@pytest.mark.parametrize("lost", [True, False], ids=["a new process without its state", "another model"])
def test_a_node_that_lost_the_model_is_sent_it_again(lost: bool) -> None:
    federation, grid = flower()
    w, ids = start(), dict.fromkeys(federation.ids, CE)
    federation.gradients(w, ids)
    if lost:
        grid.of("c2").context.state.clear()
    else:
        w = w + 1
    before, missing = len(grid.sent), dict[str, str]()
    table = list(federation.losses(Trial(w, 2 * w, (0.1, 0.2)), ids, missing))
    assert grid.kinds(before).count("query.loss") == (7 if lost else 12)
    assert missing == {}
    expected = list(simulated().losses(Trial(w, 2 * w, (0.1, 0.2)), ids, {}))
    assert np.array_equal(np.array(table), np.array(expected))


@pytest.mark.parametrize("phase", ["improve", "expand", "recover", "train"])
def test_bytes_agree_with_the_accounting(phase: str) -> None:
    """Within 5 % and a constant per message; the model must be large enough for the 5 % to mean something."""
    federation, grid = flower(large)
    w = start(large)
    method: Method = guard(rounds=6, recovery_rounds=2, lr=1.0) if phase != "train" else FedAvg(rounds=2)
    state = method.init(federation, w, None if phase == "train" else Request(FORGET))
    seen = False
    kept = KeepingAnswers(federation)
    while not state.done:
        before, up, down = len(grid.sent), federation.traffic.up, federation.traffic.down
        state = method.step(kept.at(state.round), state)
        if state.phase != phase:
            continue
        seen, messages = True, grid.sent[before:]
        constant = 2500 * len(messages)
        for real, counted in (
            (sum(s.down for s in messages), federation.traffic.down - down),
            (sum(s.up for s in messages), federation.traffic.up - up),
        ):
            assert counted <= real <= 1.05 * counted + constant
    assert seen


def large() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 4000), nn.Tanh(), nn.Linear(4000, 3))


def test_row_numbers_go_to_their_owner_alone() -> None:
    federation, grid = flower()
    asked: dict[int, list[str]] = {}

    def spy(message: Any, reply: Any) -> Any:
        text = str(message.content)
        asked.setdefault(reply.metadata.src_node_id, []).append(text)
        return reply

    for node in grid.nodes.values():
        node.fault = spy
    divided = federation.divided(Request(samples={"c1": (11, 13)}))
    assert divided.ids == ("c0", "c1", "c1/forget", "c2", "c3", "c4", "c5")
    divided.gradients(start(), dict.fromkeys(divided.ids, CE))
    owner = grid.number("c1")
    assert any("[11, 13]" in text for text in asked[owner])
    assert not any(
        "11" in text and "13" in text and "samples" in text for i in asked if i != owner for text in asked[i]
    )


# Who is there ----------------------------------------------------------------------------------------------------


def test_too_few_clients() -> None:
    grid = grid_of(plain, clients(count=3))
    with pytest.raises(UserError, match=r"3 of 4 clients are connected after 0 seconds \(c0, c1, c2\)"):
        FlowerFederation(grid, plain(), clients=4, patience=0)


def test_two_nodes_of_one_name() -> None:
    grid = grid_of(plain, clients())
    grid.start(grid.of("c1").app, {"client-id": "c1"})
    with pytest.raises(UserError, match="two nodes have the same client-id 'c1'"):
        FlowerFederation(grid, plain(), clients=6)


def test_simulation_names_its_clients_by_their_partitions() -> None:
    grid = LocalGrid()
    data = list(clients().values())
    app = client_app(plain, lambda context: data[int(context.node_config["partition-id"])])
    for k in range(3):
        grid.start(app, {"partition-id": k, "num-partitions": 3})
    federation = FlowerFederation(grid, plain(), clients=3)
    assert federation.ids == ("0", "1", "2")
    assert not federation.train(start(), federation.ids, CE, Local(0.1)).missing


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(samples={"c9": (1,)}), "samples of client 'c9' are to be forgotten, but the federation has c0, c1"),
        (Request(samples={"c1": (900,)}), "client 'c1' has training samples 0 to 23; the request names 900"),
    ],
)
def test_a_request_for_what_is_not_there(request_: Request, words: str) -> None:
    with pytest.raises(UserError, match=words):
        flower()[0].divided(request_)


def test_a_client_that_does_not_say_what_it_holds() -> None:
    federation, grid = flower()
    grid.of("c3").fault = lambda message, reply: None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MEETING", 0.0)
        with pytest.raises(UserError, match="client 'c3' did not answer whether it has training samples of class 1"):
            federation.divided(Request(classes=(1,)))


def with_one_class(client: str, label: int) -> dict[str, Splits]:
    """Return the clients, one of which has samples of a single class."""
    held = clients()
    x, y = held[client]["train"]
    return {**held, client: {**held[client], "train": (x, torch.full_like(y, label))}}


@pytest.mark.parametrize(
    "earlier", [Request(classes=(2,)), Request(samples={"c3": tuple(range(32))})], ids=["class", "samples"]
)
@pytest.mark.parametrize("later", [Request(("c1",)), Request(classes=(0,)), Request(samples={"c0": (1,)})])
def test_a_client_whose_data_are_all_forgotten_takes_part_no_more(earlier: Request, later: Request) -> None:
    held, request = with_one_class("c3", 2), later.after(earlier)
    over_flower = FlowerFederation(grid_of(plain, held), plain(), clients=6).divided(request)
    assert "c3" not in over_flower.ids
    assert over_flower.ids == SimulatedFederation(plain(), held, workers=1).divided(request).ids


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (Request(classes=(1,)), "training samples of class 1"),  # nobody has taken anything of c3 before
        (Request(("c1",)).after(Request(samples={"c0": (0,)})), "training samples left"),
    ],
)
def test_a_client_without_data_that_no_request_took(request_: Request, what: str) -> None:
    federation, grid = flower()
    grid.of("c3").fault = lambda message, reply: Message(here_records([]), reply_to=message)
    with pytest.raises(UserError, match=f"client 'c3' did not answer whether it has {what}; check its node"):
        federation.divided(request_)


def test_a_client_that_is_lost_before_a_request_divides_the_clients() -> None:
    federation, grid = flower()
    grid.stop("c3")
    federation.evaluate(start(), ("c0",), ("test",))  # by which the server notices
    with pytest.raises(UserError, match="client 'c3' is not connected"):
        federation.divided(Request(classes=(1,)))


def test_outcomes_are_the_same_in_the_run_record() -> None:
    method = guard(rounds=2, recovery_rounds=1, lr=0.3)
    runs = [loop.run(method, f, start(), Request(FORGET)) for f in (simulated(), flower()[0])]
    keys = ("round", "stage", "phase", "step", "tried", "losses", "missing", "asr", "r_acc", "forget_acc")
    mine, theirs = ([{k: r.get(k) for k in keys} for r in run.place.rounds()] for run in runs)
    assert mine == theirs
