"""Training that leaves a history: the same model to the last bit, whatever happens on the way."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fupareto import config, experiment, serial
from fupareto.errors import UserError
from fupareto.federation import Federation, Request
from fupareto.federation.history import PARTS, History, Plan
from fupareto.federation.questions import Question, Train, Trained, TrainHead
from fupareto.federation.recording import Recording
from fupareto.methods import FedAvg, State
from fupareto.run.directory import Run
from fupareto.tasks.losses import Loss

from .engines import BytesFederation, Fault, FaultyFederation, Reply, always, only, silent
from .worlds import FORGET, Factory, clients, dropping, normed, plain, shape_of, start, world

METHOD = FedAvg(rounds=5, lr=0.2, batch_size=9)
CE = Loss("ce")
IDS = ("c0", "c1", "c2", "c3", "c4", "c5")


def plan(heads: tuple[str, ...] = FORGET, parts: tuple[str, ...] = PARTS) -> Plan:
    return Plan(parts, IDS, METHOD.rounds, 2, heads, label_seed=7)  # rounds 0 and 2 are replayed


def train(federation: Federation, w: Tensor) -> list[State]:
    states = [METHOD.init(federation, w, None, seed=6)]
    while not states[-1].done:
        states.append(METHOD.step(federation.at(states[-1].round), states[-1]))
    return states


def record(federation: Federation, path: Path, w: Tensor, wanted: Plan | None = None) -> tuple[History, list[State]]:
    history = History.create(path, wanted or plan(), 0)
    return history, train(Recording(federation, history), w)


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("model", [plain, dropping, normed])
def test_recording_does_not_change_the_model(tmp_path: Path, model: Factory) -> None:
    _, states = record(world(model), tmp_path, start(model))
    for mine, theirs in zip(states, train(world(model), start(model)), strict=True):
        assert serial.same(mine, theirs)


def test_what_is_kept_does_not_depend_on_where_the_clients_live(tmp_path: Path) -> None:
    record(world(dropping), tmp_path / "here", start(dropping))
    record(BytesFederation(dropping, clients(shape_of(dropping))), tmp_path / "there", start(dropping))
    assert files(tmp_path / "here") == files(tmp_path / "there")


def test_what_is_kept_is_what_passed(tmp_path: Path) -> None:
    history, states = record(world(), tmp_path, start())
    for round_ in (0, 2):
        assert torch.equal(history.before(round_), states[round_].w)
    for round_, read in ((2, lambda i: history.local(2, i)), (4, history.last)):
        lr = 0.2 * 0.999**round_
        seed = states[round_].stream("train")
        answers = dict(world().ask(dict.fromkeys(IDS, Train(states[round_].w, CE, lr, 1, 9, seed))))
        for k, i in enumerate(IDS):
            kept, answer = read(i), answers[i]
            assert kept is not None
            assert isinstance(answer, Trained)
            assert torch.equal(kept[0], answer.w)
            assert kept[1] == 20 + 4 * k
    names = {name.split("/")[1] for name in files(tmp_path) if name.startswith("federaser/")}
    assert names == {"00000", "00002"}
    assert set(history.heads()) == set(FORGET)


@pytest.mark.parametrize("parts", [("federaser",), ("fupga",), ("fedau",), ("fupga", "fedau")])
def test_only_what_was_asked_for_is_kept(tmp_path: Path, parts: tuple[str, ...]) -> None:
    history, _ = record(world(), tmp_path, start(), plan(parts=parts))
    assert {name.split("/")[0] for name in files(tmp_path)} == {"index.json", *parts}
    assert history.plan.parts == parts


def test_second_heads_cost_their_own_traffic_and_nothing_else_does(tmp_path: Path) -> None:
    quiet, loud = world(), world()
    record(quiet, tmp_path / "without", start(), plan(parts=("federaser", "fupga")))
    record(loud, tmp_path / "with", start())
    n, head = len(start()), 12 * 3 + 3
    assert (quiet.traffic.down, quiet.traffic.up) == (5 * 6 * 4 * n, 5 * 6 * 4 * n)
    assert loud.traffic.down - quiet.traffic.down == 5 * 2 * 4 * (n + head)
    assert loud.traffic.up - quiet.traffic.up == 5 * 2 * 4 * head


# Faults --------------------------------------------------------------------------------------------------------


def spoilt(question: Question, reply: Reply) -> Reply:
    assert isinstance(reply, Trained)
    w = reply.w.clone()
    w[3] = math.nan
    return Trained(w, reply.size)


@pytest.mark.parametrize(
    "fault",
    [silent, spoilt, always(Trained(start()[:5], 20)), always(Trained(start(), None))],  # type: ignore[arg-type]
    ids=["silent", "not finite", "too short", "malformed"],
)
def test_unusable_answers_are_not_kept_and_training_goes_on(tmp_path: Path, fault: Fault) -> None:
    def broken() -> FaultyFederation:
        return FaultyFederation(world(), {"c1": only(Train, fault), "c2": only(Train, fault)})

    history, states = record(broken(), tmp_path, start())
    for i in IDS:
        absent = i in ("c1", "c2")
        assert (history.local(0, i) is None) == (history.last(i) is None) == absent
    assert all(set(s.record["missing"]) == {"c1", "c2"} for s in states[1:])
    assert serial.same(states[-1], train(broken(), start())[-1])


@pytest.mark.parametrize("fault", [silent, always(Trained(start(), 20))], ids=["silent", "a whole model"])
def test_a_head_that_does_not_come_back_stays_as_it_was(tmp_path: Path, fault: Fault) -> None:
    heads = {}
    for name, asked in (("whole", None), ("broken", fault)):
        inner = FaultyFederation(world(), {"c4": only(TrainHead, asked)} if asked else {})
        history = History.create(tmp_path / name, plan(), 0)
        recording = Recording(inner, history)
        state = METHOD.init(recording, start(), None, seed=6)
        for _ in range(2):
            state = METHOD.step(recording.at(state.round), state)
        heads[name] = history.heads(1)
        assert not state.record["missing"]  # nothing that the model is trained with is missing
    assert set(heads["whole"]) == {"c1", "c4"}
    assert set(heads["broken"]) == {"c1"}
    assert torch.equal(heads["whole"]["c1"], heads["broken"]["c1"])


# Through a run directory -----------------------------------------------------------------------------------------

TINY = {
    "data": {"samples": 200},
    "partition": {"kind": "iid", "clients": 4},
    "train": {"rounds": 4, "record": ["federaser", "fupga", "fedau"], "keep": 2},
    "request": {"clients": ["1"]},
    "unlearn": {"options": {"rounds": 1, "recovery_rounds": 0, "lr": 0.05}},
}


def tiny(**changes: Any) -> config.Experiment:
    return config.validate({**TINY, "train": {**TINY["train"], **changes}}, "tiny")  # type: ignore[dict-item]


class Cut(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recorded") / "run"
    experiment.train(tiny(), place)
    return place


def test_the_size_that_is_said_is_the_size_on_disk(recorded: Path, tmp_path: Path) -> None:
    said: list[str] = []
    run = experiment.train(tiny(), tmp_path / "run", host=experiment.Host(say=said.append))
    assert len(said) == 1
    assert str(run.path / "history") in said[0]
    total = float(said[0].split(": ")[1].split(" MB")[0])
    landed = sum(len(data) for name, data in files(run.path / "history").items() if not name.startswith("fedau/00002"))
    assert landed / 1e6 == pytest.approx(total, rel=0.1)  # said with one digit
    assert files(run.path / "history") == files(recorded / "history")


def test_the_model_is_the_one_that_is_trained_without_recording(recorded: Path, tmp_path: Path) -> None:
    experiment.train(tiny(record=[]), tmp_path / "run")
    name = "initial.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (recorded / name).read_bytes()
    assert not (tmp_path / "run/history").exists()


@pytest.mark.parametrize(
    ("owner", "function", "calls"),
    [*((History, "_write", k) for k in (0, 3, 13, 17)), *((Run, "save_state", k) for k in (1, 2, 4))],
)
def test_a_training_that_is_cut_off_leaves_the_same_history_when_resumed(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, function: str, calls: int
) -> None:
    """In the middle of a round, and between a round's files and its checkpoint: the round is done again."""
    original, left = getattr(owner, function), [calls]

    def counted(*args: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Cut
        original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, function, counted)
        with pytest.raises(Cut):
            experiment.train(tiny(), tmp_path / "run")
    experiment.train(tiny(), tmp_path / "run", resume=True)
    assert files(tmp_path / "run/history") == files(recorded / "history")
    assert (tmp_path / "run/initial.safetensors").read_bytes() == (recorded / "initial.safetensors").read_bytes()


def test_resuming_with_another_history_is_refused(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its settings do not match"):
        experiment.train(tiny(keep=3), recorded, resume=True)


@pytest.mark.parametrize("name", ["federaser", "fupga", "fedau"])
def test_a_method_finds_its_history_or_says_how_to_record_it(recorded: Path, tmp_path: Path, name: str) -> None:
    options = {"rounds": 1, "recovery_rounds": 0}
    run = experiment.unlearn(recorded, tmp_path / "found", method=name, options=options)
    assert list(run.summary["stages"]) == ["initial", "unlearned"]
    others = [part for part in PARTS if part != name]
    for record in ([], others):
        trained = tmp_path / f"trained-{len(record)}"
        experiment.train(tiny(record=record), trained)
        with pytest.raises(UserError, match=rf"fupareto train EXPERIMENT\.toml --record {name} --out DIRECTORY"):
            experiment.unlearn(trained, tmp_path / "refused", method=name, options=options)
    assert not (tmp_path / "refused").exists()


def test_heads_are_for_those_whom_the_experiment_names(recorded: Path, tmp_path: Path) -> None:
    index = json.loads((recorded / "history/index.json").read_text())
    assert index["heads"] == ["1"]
    with pytest.raises(UserError, match="no second head was trained for client 2"):
        experiment.unlearn(recorded, tmp_path / "run", request=Request(("2",)), method="fedau")
    assert not (tmp_path / "run").exists()
    assert Run.open(recorded).finished
