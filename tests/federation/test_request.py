"""Whole clients, samples, classes: who is on which side, and what an experiment makes of it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

import fupareto
from fupareto import config, experiment
from fupareto.errors import UserError
from fupareto.federation import Request, SimulatedFederation
from fupareto.federation.collected import Traffic
from fupareto.federation.contract import Federation
from fupareto.federation.history import History, Plan
from fupareto.federation.recording import WithHistory
from fupareto.federation.request import Splits
from fupareto.methods.fedau import FedAU
from fupareto.methods.federaser import FedEraser
from fupareto.methods.fupga import FUPGA
from fupareto.methods.registry import METHODS, find
from fupareto.run.directory import Run
from presets import guard

IDS = ("a", "b", "c", "d")


# Sides ---------------------------------------------------------------------------------------------------------


def test_sides_keep_the_federations_order() -> None:
    assert Request(("d", "b")).sides(IDS) == (("b", "d"), ("a", "c"))


def test_naming_a_client_twice_forgets_it_once() -> None:
    assert Request(("b", "b")).sides(IDS) == (("b",), ("a", "c", "d"))


def test_whoever_left_is_on_neither_side() -> None:
    assert Request(("d",), left=("a", "b")).sides(IDS) == (("d",), ("c",))
    with pytest.raises(UserError, match="no client 'a' in the federation; it has b, c, d"):
        Request(("a",), left=("a",)).sides(IDS)
    with pytest.raises(UserError, match="forgets everything"):
        Request(("d",), left=("a", "b", "c")).sides(IDS)


def test_virtual_clients_are_the_forget_set_of_a_partial_request() -> None:
    ids = ("a", "a/forget", "b", "c/forget")
    for request in (Request(classes=(1,)), Request(samples={"a": (0,), "c": (1,)})):
        assert request.sides(ids) == (("a/forget", "c/forget"), ("a", "b"))


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        (("b", "x", "y"), "no client 'x', 'y' in the federation; it has a, b, c, d"),
        ((), "names no client to forget; choose from a, b, c, d"),
        (("d", "c", "b", "a"), "forgets everything: no retained client is left"),
    ],
)
def test_requests_that_cannot_be_met(clients: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Request(clients).sides(IDS)


def test_partial_requests_that_cannot_be_met() -> None:
    with pytest.raises(UserError, match="no client has training samples of classes 8 and 9"):
        Request(classes=(8, 9)).sides(IDS)
    with pytest.raises(UserError, match="forgets everything"):
        Request(classes=(8,)).sides(("a/forget", "b/forget"))


@pytest.mark.parametrize(
    "kinds",
    [
        {"clients": ("a",), "classes": (1,)},
        {"clients": ("a",), "samples": {"b": (1,)}},
        {"samples": {"a": (1,)}, "classes": (1,)},
    ],
    ids=str,
)
def test_two_kinds_at_once_are_refused(kinds: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="names clients, or samples, or classes"):
        Request(**kinds)


names = st.text(min_size=1, max_size=3)
requests = st.one_of(
    st.builds(Request, clients=st.lists(names, max_size=3).map(tuple)),
    st.builds(Request, classes=st.lists(st.integers(0, 99), max_size=3).map(tuple)),
    st.builds(Request, samples=st.dictionaries(names, st.lists(st.integers(0, 10**6), max_size=4).map(tuple))),
)


@given(requests)
def test_json_and_back(request: Request) -> None:
    assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request


# Dividing ------------------------------------------------------------------------------------------------------


def held(number: int, train: list[int], test: list[int]) -> dict[str, tuple[Tensor, Tensor]]:
    """Every input is a number of its own, so that it can be recognised; ``extra`` as a marked client has it."""
    x = 1000.0 * number + torch.arange(len(train) + len(test))[:, None]
    return {
        "train": (x[: len(train)], torch.tensor(train)),
        "test": (x[len(train) :], torch.tensor(test)),
        "trigger": (x, torch.tensor(train + test)),
        "clean": (x, torch.tensor(train + test)),
    }


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Splits], Request]:
    labels = st.lists(st.integers(0, 3), min_size=1, max_size=8)
    clients: dict[str, Splits] = {str(k): held(k, draw(labels), draw(labels)) for k in range(draw(st.integers(1, 4)))}
    if draw(st.booleans()):
        classes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
        return clients, Request(classes=tuple(classes))
    chosen = draw(st.lists(st.sampled_from(sorted(clients)), min_size=1, unique=True))
    rows = {i: st.lists(st.integers(0, len(clients[i]["train"][1]) - 1), max_size=9) for i in chosen}
    return clients, Request(samples={i: tuple(draw(r)) for i, r in rows.items()})


def numbers(splits: Splits | None, name: str) -> list[float]:
    return [] if splits is None or name not in splits else splits[name][0].flatten().tolist()


@given(worlds())
def test_every_sample_is_on_exactly_one_side(world: tuple[dict[str, Splits], Request]) -> None:
    clients, request = world
    divided = request.divide(clients)
    for i, splits in clients.items():
        x, y = splits["train"]
        gone = [
            k in request.samples.get(i, ()) if request.samples else label in request.classes
            for k, label in enumerate(y.tolist())
        ]
        stays, leaves = divided.get(i), divided.get(f"{i}/forget")
        everything = x.flatten().tolist()
        assert numbers(stays, "train") == [n for n, g in zip(everything, gone, strict=True) if not g]
        assert numbers(leaves, "train") == [n for n, g in zip(everything, gone, strict=True) if g]
        assert (stays is None) == all(gone)
        assert (leaves is None) == (not any(gone))
        for part in filter(None, (stays, leaves)):
            where = [everything.index(n) for n in numbers(part, "train")]
            assert part["train"][1].tolist() == y[where].tolist()
            assert set(part) <= {"train", "test"} | ({"nonmember"} if part is leaves else set())
        if leaves and request.classes:  # a membership attack compares with held-out samples of the same classes
            held = [
                n for n, c in zip(*(t.flatten().tolist() for t in splits["test"]), strict=True) if c in request.classes
            ]
            assert numbers(leaves, "nonmember") == held
            assert ("nonmember" in leaves) == bool(held)
    owners = [i.removesuffix("/forget") for i in divided]
    assert owners == sorted(owners, key=list(clients).index)  # side by side, in the old order


@given(worlds())
def test_whoever_left_before_holds_nothing_any_more(world: tuple[dict[str, Splits], Request]) -> None:
    """Dividing after earlier requests is dividing among those who are still there."""
    clients, request = world
    gone = next((i for i in clients if i not in request.samples), None)
    assume(gone is not None)
    later = dataclasses.replace(request, left=(str(gone),)).divide(clients)
    among = request.divide({i: splits for i, splits in clients.items() if i != gone})
    assert list(later) == list(among)
    for i, splits in among.items():
        assert all(numbers(later[i], name) == numbers(splits, name) for name in later[i].keys() | splits.keys())


@given(worlds())
def test_retained_clients_are_tested_without_the_classes_that_must_go(world: tuple[dict[str, Splits], Request]) -> None:
    clients, request = world
    divided = request.divide(clients)
    for i, splits in clients.items():
        x, y = (t.tolist() for t in splits["test"])
        kept = [n for (n,), label in zip(x, y, strict=True) if label not in request.classes]
        if i in divided:
            assert numbers(divided[i], "test") == kept
            assert ("test" in divided[i]) == bool(kept)
        if f"{i}/forget" in divided:
            assert numbers(divided[f"{i}/forget"], "test") == [n for (n,) in x]


def test_the_clients_are_left_as_they_are() -> None:
    clients = {"a": held(0, [0, 1, 1], [1]), "b": held(1, [0], [0])}
    Request(classes=(1,)).divide(clients)
    assert set(clients) == {"a", "b"}
    assert clients["a"]["train"][1].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(samples={"a": (0, 3)}), "client 'a' has training samples 0 to 2; the request names 3"),
        (Request(samples={"a": (-1,)}), "client 'a' has training samples 0 to 2; the request names -1"),
        (Request(samples={"a": (10**30,)}), "the request names 1000000"),
        (
            Request(samples={"a": (0,), "z": (0,)}),
            "samples of client 'z' are to be forgotten, but the federation has a, b",
        ),
    ],
)
def test_samples_that_nobody_has(request_: Request, words: str) -> None:
    with pytest.raises(UserError, match=words):
        request_.divide({"a": held(0, [0, 1, 1], [1]), "b": held(1, [0], [0])})


@pytest.mark.parametrize("classes", [(7,), (-1,), (10**30,)])
def test_a_class_that_nobody_has_divides_nothing(classes: tuple[int, ...]) -> None:
    clients = {"a": held(0, [0, 1, 1], [1]), "b": held(1, [0], [0])}
    divided = Request(classes=classes).divide(clients)
    assert set(divided) == {"a", "b"}
    with pytest.raises(UserError, match="no client has"):
        Request(classes=classes).sides(tuple(divided))


# Methods -------------------------------------------------------------------------------------------------------


def points(seed: int, size: int = 9) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(seed)), torch.arange(size) % 3


def federation() -> SimulatedFederation:
    clients = {str(k): {"train": points(k), "test": points(9 + k)} for k in range(3)}
    return SimulatedFederation(torch.nn.Linear(4, 3), clients, workers=1)


PARTIAL = [Request(classes=(2,)), Request(samples={"1": (0, 4)})]


AFTER = [Request(("0",)).after(request) for request in PARTIAL]  # recorded models hold what these forgot


@pytest.mark.parametrize("request_", [*PARTIAL, *AFTER], ids=["class", "samples", "after class", "after samples"])
@pytest.mark.parametrize("method", [FedEraser(), FUPGA(), FedAU()], ids=lambda m: m.name)
@pytest.mark.parametrize("recorded", [False, True])
def test_methods_that_recorded_whole_clients_refuse_parts_of_them(
    tmp_path: Path, request_: Request, method: Any, recorded: bool
) -> None:
    engine: Federation = federation().divided(request_)
    if recorded:
        engine = WithHistory(engine, History.create(tmp_path, Plan((method.history,), ("0", "1", "2"), 3), 0))
    with pytest.raises(UserError, match=r"forgets whole clients only: .* Use another method for samples or classes"):
        method.init(engine, torch.zeros(15), request_)


@pytest.mark.parametrize("request_", PARTIAL, ids=["class", "samples"])
@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if not m.whole_clients and not m.history])
def test_every_other_method_forgets_parts(request_: Request, name: str) -> None:
    engine = federation().divided(request_)
    options: dict[str, Any] = {"rounds": 1, "recovery_rounds": 1, "training_rounds": 5, "batch_size": 4}
    method = find(name, {key: value for key, value in options.items() if hasattr(METHODS[name], key)})
    state: Any = method.init(engine, torch.zeros(15), request_)
    virtual = {"class": ("0/forget", "1/forget", "2/forget"), "samples": ("1/forget",)}
    assert state.forget == virtual["class" if request_.classes else "samples"]
    assert state.retained == ("0", "1", "2")
    while not state.done:
        state = method.step(engine, state)
        assert state.record["missing"] == {}
    assert bool(torch.isfinite(state.w).all())


class Foreign(Federation):
    """An engine that cannot divide its clients."""

    def __init__(self) -> None:
        inner = federation()
        self.ids, self.layout, self.traffic = inner.ids, inner.layout, Traffic()

    def ask(self, questions: Any) -> Any:
        raise AssertionError


def test_an_engine_that_cannot_divide_its_clients_says_so() -> None:
    assert Foreign().divided(Request(("1",))).ids == ("0", "1", "2")
    with pytest.raises(UserError, match="Foreign cannot forget samples or classes, only whole clients"):
        Foreign().divided(Request(classes=(1,)))


def test_from_python() -> None:
    method = guard(rounds=2, recovery_rounds=0)
    result = fupareto.unlearn(federation(), torch.zeros(15), Request(classes=(2,)), method)
    assert result.summary()["forget"] == ["0/forget", "1/forget", "2/forget"]
    whole = federation()
    assert whole.divided(Request(("1",))) is whole


# An experiment -------------------------------------------------------------------------------------------------

DIGITS = config.validate(
    {
        "data": {"samples": 400},
        "partition": {"kind": "iid", "clients": 4},
        "train": {"rounds": 12},
        "request": {"clients": ["1"]},
        "unlearn": {"method": "fupareto:guard", "options": {"rounds": 4, "recovery_rounds": 1, "lr": 0.1}},
    },
    "digits",
)
ROWS = tuple(range(0, 40, 2))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training in which client 1 carries a backdoor."""
    place = tmp_path_factory.mktemp("requests") / "trained"
    experiment.train(DIGITS, place)
    return place


def labels(split: str) -> dict[str, Tensor]:
    engine, _ = experiment.federation(DIGITS)
    return {i: c[split][1] for i, c in engine.clients.items()}


def test_a_class_is_forgotten(trained: Path, tmp_path: Path) -> None:
    run = experiment.unlearn(trained, tmp_path / "run", request=Request(classes=(4,)))
    holders = [i for i, y in labels("train").items() if bool((y == 4).any())]
    assert run.summary["forget"] == [f"{i}/forget" for i in holders]
    initial, unlearned = (run.summary["stages"][s] for s in ("initial", "unlearned"))
    assert initial["asr"] is unlearned["asr"] is None  # forget accuracy instead, though client 1 carries a backdoor
    assert unlearned["forget_acc"] < initial["forget_acc"] - 0.2
    assert unlearned["r_acc"] > initial["r_acc"] - 0.1
    assert run.request["classes"] == [4]
    assert "class 4" in run.summary["verdict"]
    assert experiment.audit(Run.open(run.path))["stages"] == run.summary["stages"]


def test_accuracy_of_those_who_stay_is_without_the_class(trained: Path) -> None:
    engine, _ = experiment.federation(DIGITS, Request(classes=(4,)))
    w = engine.layout.flat(Run.open(trained).load_model("initial") or {})
    seen = engine.evaluate(w, ("0", "1", "2", "3"), ("test",))
    for i, y in labels("test").items():
        assert seen.counts[i]["test"]["samples"] == int((y != 4).sum()) < len(y)


def test_samples_are_forgotten_and_measured_where_they_are(trained: Path, tmp_path: Path) -> None:
    """Also those of a client that carries a backdoor: as it was trained on them, and on nothing else."""
    request = Request(samples={"1": ROWS, "3": (0, 1, 2)})
    run = experiment.unlearn(trained, tmp_path / "run", request=request)
    assert run.summary["forget"] == ["1/forget", "3/forget"]
    engine, _ = experiment.federation(DIGITS)
    w = engine.layout.flat(run.load_model("initial") or {})
    shares = []
    for i, rows in request.samples.items():
        x, y = engine.clients[i]["train"]
        alone = engine.like({j: {"train": (x[list(rows)], y[list(rows)])} for j in "ab"})
        shares.append(alone.evaluate(w, ("a",), ("train",)).accuracy("a", "train"))
    initial = run.summary["stages"]["initial"]
    assert initial["forget_acc"] == pytest.approx(sum(s for s in shares if s is not None) / 2)
    assert initial["asr"] is None
    assert run.request["samples"] == {"1": list(ROWS), "3": [0, 1, 2]}
    resumed = experiment.unlearn(trained, tmp_path / "run", request=request, resume=True)
    assert resumed.summary == run.summary
    with pytest.raises(UserError, match="another request"):
        experiment.unlearn(trained, tmp_path / "run", request=Request(samples={"1": (0,)}), resume=True)


@pytest.mark.parametrize(
    ("request_", "options", "words"),
    [
        (Request(classes=(11,)), {}, "no client has training samples of class 11"),
        (Request(classes=tuple(range(10))), {}, "forgets everything"),
        (Request(samples={"1": (5000,)}), {}, "client '1' has training samples 0 to"),
        (Request(samples={"9": (0,)}), {}, "samples of client '9'"),
        (Request(samples={"1": ()}), {}, "no client has"),
        (Request(classes=(4,)), {"method": "federaser"}, "forgets whole clients only"),
        (Request(classes=(4,)), {"method": "fupga"}, "forgets whole clients only"),
        (Request(classes=(4,)), {"method": "fedau"}, "forgets whole clients only"),
        (Request(classes=(4,)), {"sequential": True}, "needs a request for clients"),
    ],
)
def test_what_cannot_be_answered_leaves_no_run_directory(
    trained: Path, tmp_path: Path, request_: Request, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        experiment.unlearn(trained, tmp_path / "run", request=request_, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"classes": [4, 4, 7]}, Request(classes=(4, 7))),
        ({"samples": {"1": [3, 5]}}, Request(samples={"1": (3, 5)})),
        ({"clients": ["2"]}, Request(("2",))),
    ],
)
def test_the_experiment_file_asks(asked: dict[str, Any], wanted: Request) -> None:
    file = config.validate({**DIGITS.model_dump(), "request": asked}, "file")
    assert experiment.default_request(file) == wanted


def test_the_experiment_file_asks_for_one_kind() -> None:
    with pytest.raises(
        UserError, match="names clients and classes; a request names clients, samples or classes, not several"
    ):
        config.validate({"request": {"clients": ["1"], "classes": [4]}}, "file")


def test_training_for_a_partial_request_is_measured_without_it(tmp_path: Path) -> None:
    changes = {"request": {"classes": [4]}, "train": {"rounds": 1}, "backdoor": {"enabled": False}}
    file = config.validate({**DIGITS.model_dump(), **changes}, "file")
    run = experiment.train(file, tmp_path / "trained")
    assert run.summary["forget"] == []
    assert experiment.audit(run)["forget"] == []
    unlearned = experiment.unlearn(tmp_path / "trained", tmp_path / "run")
    assert unlearned.summary["forget"][0].endswith("/forget")


def test_what_is_forgotten_in_words() -> None:
    assert Request(samples={"a": (3, 3)}).words() == "1 training sample of client a"
    assert Request(samples={"a": (0, 1), "b": (2,)}).words() == "3 training samples of clients a and b"
    assert Request(classes=(4, 7, 9)).words() == "training samples of classes 4, 7 and 9"
    assert Request(("a",)).words() == ""


def test_a_name_that_is_kept_for_virtual_clients_is_refused() -> None:
    held = {"train": (torch.zeros(2, 1), torch.tensor([0, 1]))}
    with pytest.raises(UserError, match="rename it"):
        Request(classes=(1,)).divide({"a": held, "a/forget": held})


def test_from_python_a_refusal_leaves_nothing_behind(tmp_path: Path) -> None:
    held = (torch.randn(8, 3), torch.arange(8) % 2)
    federation = fupareto.simulate(torch.nn.Sequential(torch.nn.Linear(3, 2)), dict.fromkeys("abc", (held, held)))
    with pytest.raises(UserError, match="record"):
        fupareto.unlearn(federation, torch.zeros(8), ["a"], FedEraser(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
