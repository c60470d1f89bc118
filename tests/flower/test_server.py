"""The ServerApp: a run config in, a run directory out, as in simulation; killed and run again, nothing is lost."""

import itertools
import json
import logging
import tomllib
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from flwr.app import Context, Message, RecordDict

import fupareto
from federation.worlds import FORGET, clients, plain, start
from fupareto import UserError, api, result
from fupareto.evidence import certify
from fupareto.federation import SimulatedFederation
from fupareto.flower import FlowerFederation, nodes, server_app
from fupareto.flower.order import Order
from fupareto.flower.server import serve
from fupareto.methods import FedAvg, FUPareto
from fupareto.parameters import Layout
from fupareto.run.directory import Run
from presets import guard

from .example import APP
from .grid import LocalGrid, grid_of

OPTIONS = "rounds=3 recovery_rounds=2 lr=0.3"
METHOD = guard(rounds=3, recovery_rounds=2, lr=0.3)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Nobody is waited for, and figures are drawn in one test only: they take seconds."""
    monkeypatch.setattr(nodes, "MEETING", 0.0)
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(result, "render", lambda *_: "<html></html>")


@pytest.fixture
def drawn() -> None:
    """The report as users see it."""


@pytest.fixture
def grid() -> LocalGrid:
    return grid_of(plain, clients())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "w0.safetensors"
    safetensors.torch.save_file(Layout.of(plain()).named(start()), path)
    return path


def order(model: Path, out: Path, **more: Any) -> dict[str, Any]:
    base = {
        "forget": ",".join(FORGET),
        "method": "fupareto:guard",
        "options": OPTIONS,
        "model": str(model),
        "out": str(out),
    }
    return {**base, "clients": 6, "timeout": 5.0, "patience": 0.0, **more}


@pytest.mark.usefixtures("drawn")
def test_a_request_is_answered_as_in_simulation(grid: LocalGrid, model: Path, tmp_path: Path) -> None:
    run = serve(grid, order(model, tmp_path / "run"), plain)
    here = api.unlearn(SimulatedFederation(plain(), clients(), 1), start(), list(FORGET), METHOD)
    for stage in ("initial", "unlearned", "recovered"):
        mine, theirs = run.load_model(stage), here.model(stage)
        assert mine is not None
        assert all(torch.equal(mine[k], theirs[k]) for k in theirs)
    audit = here.audit()
    assert run.summary["stages"] == here.summary()["stages"]
    assert run.audit is not None
    assert run.audit["membership"] == audit["membership"]
    assert run.summary["versions"].keys() == {"fupareto", "torch", "numpy", "flwr", "python"}
    page = (run.path / "report.html").read_text()
    assert "<svg" in page
    assert run.summary["verdict"][:40] in page
    assert certify(run.path).is_file()


def test_training_then_forgetting_then_forgetting_another(grid: LocalGrid, tmp_path: Path) -> None:
    config = order(Path(), tmp_path / "training", forget="", method="fedavg", options="rounds=3 lr=0.2")
    trained = serve(grid, {**config, "model": "", "record": "federaser", "keep": 2}, plain)
    assert (trained.path / "history" / "index.json").is_file()
    first = serve(grid, order(trained.path, tmp_path / "first", forget="c1"), plain)
    assert json.loads((first.path / "request.json").read_text())["clients"] == ["c1"]
    second = serve(grid, order(first.path, tmp_path / "second", forget="c4"), plain)
    assert (second.request["clients"], second.request["left"]) == (["c4"], ["c1"])
    assert "c1" not in second.summary["stages"]["recovered"]["clients"]
    kept, begun = first.load_model(first.summary["final"]), second.load_model("initial")
    assert kept is not None
    assert begun is not None
    assert all(torch.equal(kept[k], begun[k]) for k in kept)
    erased = serve(grid, order(trained.path, tmp_path / "erased", method="federaser", options="rounds=2"), plain)
    assert erased.summary["method"] == "federaser"


def test_rounds_are_logged_to_a_tracker(grid: LocalGrid, model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the tracker 'elsewhere' is unknown"):
        serve(grid, order(model, tmp_path / "run", log="elsewhere"), plain)
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = serve(grid, order(model, tmp_path / "run", audit=False, log="tensorboard"), plain)
    events = accumulator.EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("r_acc")] == [record["round"] for record in run.rounds()]


def test_renewal_over_flower_follows_the_training_of_the_run(grid: LocalGrid, tmp_path: Path) -> None:
    config = order(Path(), tmp_path / "training", forget="", method="fedavg", options="rounds=8 lr=0.2 batch_size=5")
    trained = serve(grid, {**config, "model": ""}, plain)
    options = "rounds=1 training.lr=0.1"
    run = serve(grid, order(trained.path, tmp_path / "run", method="fupareto", options=options, audit=False), plain)
    stored = run.config["method"]["training"]
    assert (stored["rounds"], stored["lr"], stored["batch_size"]) == (8, 0.1, 5)
    assert [r["phase"] for r in run.rounds()] == ["renew", "renew", "improve"]
    here, training = SimulatedFederation(plain(), clients(), 1), FedAvg(rounds=8, lr=0.1, batch_size=5)
    same = api.unlearn(here, trained.path, list(FORGET), FUPareto(rounds=1, training=training))
    mine, theirs = run.load_model("unlearned"), same.model("unlearned")
    assert mine is not None
    assert all(torch.equal(mine[k], theirs[k]) for k in theirs)
    with pytest.raises(UserError, match="option 'training': method 'fedavg' has no option 'epoch'"):
        serve(grid, order(trained.path, tmp_path / "other", options="training.epoch=1"), plain)


def test_a_run_over_flower_is_audited_and_continued_by_the_same_calls(grid: LocalGrid, tmp_path: Path) -> None:
    """With the federation at hand, or with one in this process that has the same clients."""
    config = order(Path(), tmp_path / "training", forget="", method="fedavg", options="rounds=3 lr=0.2")
    trained = serve(grid, {**config, "model": ""}, plain)
    run = serve(grid, order(trained.path, tmp_path / "run", forget="c1", audit=False), plain)
    assert run.audit is None
    flower = FlowerFederation(grid, plain(), clients=6, timeout=5.0, patience=0.0)
    found = fupareto.audit(flower, run.path, retrain=True)
    assert (found["truth"]["rounds"], "notes" in found) == (3, False)  # as it was trained
    assert run.audit == found
    here = SimulatedFederation(plain(), clients(), 1)
    assert fupareto.audit(here, run.path)["membership"] == found["membership"]
    second = fupareto.unlearn(here, run.path, ["c4"], METHOD)
    assert second.request == fupareto.Request(("c4",), left=("c1",))


def test_an_audit_over_flower_trains_on(grid: LocalGrid, tmp_path: Path) -> None:
    """With the numbers of a simulation, asked for by the run config."""
    config = order(Path(), tmp_path / "training", forget="", method="fedavg", options="rounds=3 lr=0.2")
    trained = serve(grid, {**config, "model": ""}, plain)
    run = serve(grid, order(trained.path, tmp_path / "run", forget="c1", retrain=2, dormancy=2), plain)
    found = run.audit
    assert found is not None
    assert (found["dormancy"]["rounds"], found["truth"]["rounds"]) == (2, 3)
    here = SimulatedFederation(plain(), clients(), 1)
    again = fupareto.audit(here, run.path, dormancy=2)
    for part in ("dormancy", "relearning", "way"):
        assert again[part] == found[part], part
    named = f"{run.path / 'retrained'},{run.path / 'retrained-2'}"
    other = serve(grid, order(trained.path, tmp_path / "other", forget="c1", reference=named), plain)
    assert other.audit is not None
    assert other.audit["truth"]["stages"] == found["truth"]["stages"]
    assert other.audit["dormancy"] is None


def test_the_truth_can_be_named(grid: LocalGrid, model: Path, tmp_path: Path) -> None:
    retrained = serve(grid, order(model, tmp_path / "again", method="retrain", options="rounds=4 lr=0.2"), plain)
    run = serve(grid, order(model, tmp_path / "run", reference=str(retrained.path)), plain)
    assert run.audit is not None
    assert run.audit["truth"] is not None
    assert run.audit["relearning"] is not None
    with pytest.raises(UserError, match="not a run of method"):
        serve(grid, order(model, tmp_path / "more", reference=str(run.path)), plain)


def test_samples_and_classes(grid: LocalGrid, model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text('{"c1": [0, 3], "c4": [2]}')
    run = serve(grid, order(model, tmp_path / "rows", forget="", samples=str(rows)), plain)
    assert run.summary["forget"] == ["c1/forget", "c4/forget"]
    assert run.summary["part"] == "3 training samples of clients c1 and c4"
    run = serve(grid, order(model, tmp_path / "class", forget="", classes=2), plain)
    assert run.summary["part"] == "training samples of class 2"


def test_without_attacks_no_output_leaves_a_node(grid: LocalGrid, model: Path, tmp_path: Path) -> None:
    run = serve(grid, order(model, tmp_path / "run", audit=False), plain)
    assert "query.outputs" not in grid.kinds()
    assert run.audit is None
    assert run.summary["stages"]["recovered"]["mia_auc"] is None
    assert (run.path / "report.html").is_file()
    assert certify(run.path).is_file()


class Killed(BaseException):
    """As a signal: nothing in the program catches it."""


@pytest.mark.parametrize("message", [3, 17, 25, 40, 60])
def test_a_killed_server_goes_on_where_it_was(message: int, model: Path, tmp_path: Path) -> None:
    whole = serve(grid_of(plain, clients()), order(model, tmp_path / "whole"), plain)
    grid = grid_of(plain, clients())
    asked = itertools.count(1)

    def deadly(question: Message, reply: Message) -> Message:
        if next(asked) == message:
            raise Killed
        return reply

    for node in grid.nodes.values():
        node.fault = deadly
    with pytest.raises(Killed):
        serve(grid, order(model, tmp_path / "run"), plain)
    again = serve(grid_of(plain, clients()), order(model, tmp_path / "run", resume=True), plain)
    for stage in ("unlearned", "recovered"):
        mine, theirs = again.load_model(stage), whole.load_model(stage)
        assert mine is not None
        assert theirs is not None
        assert all(torch.equal(mine[k], theirs[k]) for k in theirs)
    assert [r["round"] for r in again.rounds()] == [1, 2, 3, 4, 5]
    assert again.summary["stages"] == whole.summary["stages"]


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({"forget": ""}, "does not say what is to be forgotten"),
    "somebody unknown": ({"forget": "c9"}, "no client 'c9' in the federation; it has c0, c1"),
    "everybody": ({"forget": "c0,c1,c2,c3,c4,c5"}, "forgets everything"),
    "two kinds": ({"classes": "1"}, "clients, or samples, or classes"),
    "no model": ({"model": ""}, "does not say which model is to forget"),
    "a model that is not there": ({"model": "nowhere.safetensors"}, "cannot read the model nowhere.safetensors"),
    "a method that there is not": ({"method": "forgetful"}, "unknown method 'forgetful'"),
    "an option that there is not": ({"options": "speed=3"}, "has no option 'speed'"),
    "an option without a value": ({"options": "rounds"}, "options takes key=value, not 'rounds'"),
    "an option out of range": ({"options": "rounds=-1"}, "rounds"),
    "training somebody away": ({"method": "fedavg", "options": ""}, "trains a model and forgets nothing"),
    "no time": ({"timeout": 0.0}, "timeout = 0.0"),
    "not a number": ({"clients": "many"}, "clients = 'many'"),
    "too few": ({"clients": 7}, "6 of 7 clients are connected"),
    "no history": ({"method": "federaser", "options": ""}, "record"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_leave_nothing_behind(name: str, grid: LocalGrid, model: Path, tmp_path: Path) -> None:
    change, words = MISTAKES[name]
    with pytest.raises(UserError, match=words):
        serve(grid, {**order(model, tmp_path / "run"), **change}, plain)
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten(grid: LocalGrid, model: Path, tmp_path: Path) -> None:
    run = serve(grid, order(model, tmp_path / "run"), plain)
    before = {p: p.read_bytes() for p in sorted(run.path.rglob("*")) if p.is_file()}
    with pytest.raises(UserError, match="already exists"):
        serve(grid, order(model, tmp_path / "run"), plain)
    with pytest.raises(UserError, match="its settings do not match"):
        serve(grid, order(model, tmp_path / "run", forget="c1", resume=True), plain)
    other = tmp_path / "other.safetensors"
    safetensors.torch.save_file(Layout.of(plain()).named(start() + 1), other)
    with pytest.raises(UserError, match="started from another initial model"):
        serve(grid, order(other, tmp_path / "run", resume=True), plain)
    assert {p: p.read_bytes() for p in sorted(run.path.rglob("*")) if p.is_file()} == before


def test_a_model_of_another_shape(grid: LocalGrid, tmp_path: Path) -> None:
    path = tmp_path / "w0.safetensors"
    safetensors.torch.save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(UserError, match="weight"):
        serve(grid, order(path, tmp_path / "run"), plain)


def test_the_app_fails_with_one_line(
    grid: LocalGrid, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = Context(1, 0, {}, RecordDict(), order(model, tmp_path / "run", forget="c9"))
    logging.getLogger("flwr").propagate = True
    with pytest.raises(UserError), caplog.at_level(logging.INFO, "flwr"):
        server_app(plain)(grid, context)
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == [
        "fupareto: no client 'c9' in the federation; it has c0, c1, c2, c3, c4, c5"
    ]


def test_what_is_logged(grid: LocalGrid, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("flwr").propagate = True
    with caplog.at_level(logging.INFO, "flwr"):
        serve(grid, order(model, tmp_path / "run", **{"measure-every": 2}), plain)
    first, *lines = [r.message for r in caplog.records]
    assert first.startswith("fupareto: no membership file")
    assert lines[0] == "fupareto: 6 clients are connected: c0, c1, c2, c3, c4, c5"
    assert sum(line.startswith("fupareto: round ") for line in lines) == 5
    assert any("report.html" in line for line in lines)


def test_keys_of_the_apps_own_are_left_alone() -> None:
    read = Order.read({"forget": 3, "model": "w0.safetensors", "learning-rate": 0.1, "measure-every": 5})
    assert (read.forget, read.measure_every) == ("3", 5)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = fupareto.flower.nothing


def test_a_finished_run_may_be_resumed(grid: LocalGrid, model: Path, tmp_path: Path) -> None:
    run = serve(grid, order(model, tmp_path / "run"), plain)
    rounds = run.rounds()
    again = serve(grid, order(model, tmp_path / "run", resume=True), plain)
    assert again.rounds() == rounds
    assert isinstance(again, Run)


@pytest.mark.parametrize(
    ("method", "options", "told"),
    [
        ("fupareto", "rounds=1 renewal=0.01", True),
        ("renew", "rounds_share=0.01", True),
        ("fupareto", "rounds=1 renewal=0.5 training.rounds=2 training.lr=0.1", False),
        ("fupareto:guard", OPTIONS, False),
    ],
)
def test_renewal_after_an_unknown_training_says_what_it_assumes(
    grid: LocalGrid,
    model: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    options: str,
    told: bool,
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    config = order(model, tmp_path / "run", method=method, options=options, audit=False, **{"measure-every": 0})
    run = serve(grid, config, plain)
    words = "how the model was trained is not known, so renewal takes 2 rounds with lr=0.1 and batch_size=200"
    assert (words in caplog.text) is told
    assert bool(run.summary["phases"].get("renew")) is (method == "fupareto") or method == "renew"


def test_every_key_of_the_run_config_can_be_set_in_the_template() -> None:
    """Flower refuses a key that the app does not list, so one that is not there could not be used."""
    listed = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    keys = {field.alias for field in Order.model_fields.values()}
    assert set(listed) == keys
    read = Order.model_validate(listed)
    assert read.dormancy is None
    assert read == Order.model_validate({"clients": 10, "measure-every": 5})  # where the example differs
