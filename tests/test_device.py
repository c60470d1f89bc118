"""Nothing assumes the CPU: whole runs on another device, which is emulated (no GPU was at hand), end the same."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fupareto
from elsewhere import Elsewhere, another_device
from federation.worlds import FEATURES, FORGET, IMAGES, Factory, clients, normed, plain, start
from fupareto import UserError, api, serial
from fupareto.audit import relearning
from fupareto.federation import Request, SimulatedFederation
from fupareto.federation.history import History
from fupareto.federation.recording import WithHistory
from fupareto.federation.simulated import usable
from fupareto.methods import FedAvg, Method
from fupareto.methods.registry import METHODS, find
from fupareto.methods.sequential import Sequential
from presets import guard

ROOT = Path(fupareto.__file__).parent
MAKERS = {
    "zeros",
    "ones",
    "empty",
    "full",
    "tensor",
    "arange",
    "eye",
    "linspace",
    "rand",
    "randn",
    "randint",
    "randperm",
}


def ended(result: api.Result) -> list[Any]:
    """What a run ends with, brought here: models, and every round's record."""
    models = [result.outcome.model(stage) for stage in ("initial", "unlearned", "recovered")]
    rounds = [{k: v for k, v in r.items() if k != "seconds"} for r in result.rounds]
    return [[] if w is None else w.cpu().tolist() for w in models] + rounds


def both(run: Any, model: Factory = plain, shape: tuple[int, ...] = FEATURES) -> tuple[list[Any], list[Any]]:
    """Do the same on the CPU and on the other device."""
    here = run(SimulatedFederation(model(), clients(shape), workers=1))
    with another_device() as device:
        federation = SimulatedFederation(model(), clients(shape), device=device)
        assert federation.workers == 1
        assert all(isinstance(t, Elsewhere) for pair in federation.clients["c0"].values() for t in pair)
        there = run(federation)
    return here, there


def undropped() -> torch.nn.Module:
    """Batch norm without dropout: what a device draws at random is its own affair."""
    module = normed()
    module.drop = torch.nn.Identity()
    return module


@pytest.mark.parametrize(("model", "shape"), [(plain, FEATURES), (undropped, IMAGES)])
def test_training_is_the_same(model: Factory, shape: tuple[int, ...]) -> None:
    method = FedAvg(rounds=2, lr=0.1, batch_size=9, participation=0.5)
    here, there = both(lambda federation: ended(api.train(federation, start(model), method)), model, shape)
    assert here[0] == pytest.approx(there[0], abs=1e-6)  # a convolution adds up in another order there
    assert [r["sampled"] for r in here[3:]] == [r["sampled"] for r in there[3:]]


@pytest.mark.parametrize(
    ("options", "request_"),
    [
        ({}, Request(FORGET)),
        ({"participation": 0.5, "recovery": "away"}, Request(FORGET)),
        ({"gradient": "pseudo", "batch_size": 9}, Request(FORGET)),
        ({}, Request(classes=(1,))),
        ({}, Request(samples={"c1": (0, 3, 5)})),
    ],
    ids=["default", "a half, anchored", "pseudo-gradients", "a class", "samples"],
)
def test_fupareto_is_the_same(options: dict[str, Any], request_: Request) -> None:
    method = guard(rounds=3, recovery_rounds=1, lr=1.0, **options)
    here, there = both(lambda federation: ended(api.unlearn(federation, start(), request_, method)))
    assert here == there


@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("fedavg", "fupareto")])
def test_every_method_is_the_same(name: str, tmp_path: Path) -> None:
    rounds = {"rounds": 1, "recovery_rounds": 1, "training_rounds": 5}
    method: Method = find(name, {key: value for key, value in rounds.items() if hasattr(METHODS[name], key)})

    def run(federation: SimulatedFederation) -> list[Any]:
        out = tmp_path / federation.device.type
        training: Method = FedAvg(rounds=2, batch_size=9) if name != "ridge" else method
        record = ("ridge",) if name == "ridge" else ("federaser", "fupga", "fedau", "rewind")
        trained = api.train(federation, start(), training, out=out, record=record, keep=2)
        history = History.open(out / "history")
        assert history is not None
        w0 = trained.outcome.model("initial")
        assert w0 is not None
        return ended(api.unlearn(WithHistory(federation, history), w0, list(FORGET), method))

    here, there = both(run)
    assert here == there


def test_a_run_that_was_cut_off_goes_on_there(tmp_path: Path) -> None:
    class Cut(Exception):
        pass

    def cut(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise Cut

    inner = guard(rounds=2, recovery_rounds=1, lr=1.0)

    def run(federation: SimulatedFederation) -> list[Any]:
        out = tmp_path / federation.device.type
        for method in (inner, Sequential(inner, 2)):
            how: dict[str, Any] = {"out": out / method.name, "measure_every": 0}
            with pytest.raises(Cut):
                api.unlearn(federation, start(), list(FORGET), method, watch=cut, **how)
            result = api.unlearn(federation, start(), list(FORGET), method, resume=True, **how)
        return ended(result)

    here, there = both(run)
    assert here == there
    for name in ("fupareto", "sequential"):
        one, other = (tmp_path / d / name / "recovered.safetensors" for d in ("cpu", "meta"))
        assert one.read_bytes() == other.read_bytes()


def test_the_audit_and_its_report_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relearning, "ROUNDS", 2)
    method = guard(rounds=2, recovery_rounds=1, lr=1.0)

    def run(federation: SimulatedFederation) -> list[Any]:
        result = api.unlearn(federation, start(), list(FORGET), method)
        again = api.unlearn(federation, start(), list(FORGET), find("retrain", {"rounds": 1}))
        truth = again.outcome.model("unlearned")
        found = result.audit(training=FedAvg(lr=0.1, batch_size=9), reference=truth, dormancy=2)
        result.report(tmp_path / "report.html")
        return [json.dumps({k: v for k, v in found.items() if k != "created"})]

    here, there = both(run)
    assert here == there


def test_the_other_device_is_one() -> None:
    """Else every test above would pass on anything."""
    with another_device() as device:
        far, near = torch.ones(3, device=device), torch.ones(3)
        assert far.device == device
        assert float((2 * far).sum()) == 6.0
        for wrong in (lambda: far + near, lambda: torch.stack([far, near]), lambda: far.numpy()):
            with pytest.raises((RuntimeError, TypeError)):
                wrong()
        assert torch.equal(far.cpu(), near)


def test_a_state_comes_from_disk_to_the_device() -> None:
    state = guard().init(SimulatedFederation(plain(), clients(), workers=1), start(), Request(FORGET))
    moved = serial.moved(state, torch.device("meta"))
    assert {t.device.type for t in (moved.w, moved.w0, moved.guard)} == {"meta"}
    assert moved.forget == state.forget


# What would not be noticed until somebody has a GPU ----------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [p for part in ("federation", "methods", "pareto") for p in sorted((ROOT / part).rglob("*.py"))], ids=str
)
def test_tensors_are_made_on_a_device_that_is_named(path: Path) -> None:
    """What is read from the user's data, or is empty and never computed with, may be made here."""
    allowed = {"reading.py", "samples.py"}
    for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if path.name in allowed or not name.startswith("torch.") or name.split(".")[-1] not in MAKERS | {"Generator"}:
            continue
        placed = any(k.arg == "device" for k in call.keywords) or (name == "torch.Generator" and call.args)
        empty = name == "torch.empty" and ast.unparse(call.args[0]) == "0"
        assert placed or empty, f"{path.name}:{call.lineno}: {ast.unparse(call)} has no device"


@pytest.mark.parametrize("device", ["nonsense", "cuda:77", "mps"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(UserError, match=f"the device '{device}' cannot be used"):
        usable(device)
    with pytest.raises(UserError, match="cannot be used"):
        fupareto.simulate(plain(), {i: (s["train"], s["test"]) for i, s in clients().items()}, device=device)


def test_models_and_vectors_of_the_user_are_brought_there() -> None:
    with another_device() as device:
        federation = fupareto.simulate(
            plain(), {i: (s["train"], s["test"]) for i, s in clients().items()}, device=device
        )
        w: Tensor = start()
        result = fupareto.unlearn(federation, w, list(FORGET), guard(rounds=1, recovery_rounds=0))
        assert isinstance(result.outcome.model("unlearned"), Elsewhere)
        assert isinstance(federation.fresh(1), Elsewhere)
    assert not isinstance(w, Elsewhere)
