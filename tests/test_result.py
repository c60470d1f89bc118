"""What a run gives back: models to load, a summary, an audit against a retrained model, and what may follow it."""

import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import fupareto
from fupareto import FedAvg, FUPareto, Request, UserError
from fupareto.evidence import certify
from fupareto.methods.retrain import Retrain
from fupareto.run.directory import Run
from manifests import relist
from presets import guard

TRAINING = FedAvg(rounds=4, lr=0.3, batch_size=10)
METHOD = guard(rounds=2, recovery_rounds=1, lr=0.1)


def samples(seed: int, count: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    return torch.randn(count, 4, generator=generator) + y[:, None], y


def model(normalised: bool = False) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        middle = nn.BatchNorm1d(8) if normalised else nn.ReLU()
        return nn.Sequential(nn.Linear(4, 8), middle, nn.Linear(8, 3))


def clients() -> dict[str, tuple[Any, Any]]:
    return {name: (samples(k), samples(100 + k, 12)) for k, name in enumerate("abcd")}


@pytest.fixture(scope="module")
def federation() -> fupareto.Federation:
    return fupareto.simulate(model(), clients())


@pytest.fixture(scope="module")
def trained(federation: fupareto.Federation, tmp_path_factory: pytest.TempPathFactory) -> fupareto.Result:
    out = tmp_path_factory.mktemp("runs") / "trained"
    return fupareto.train(federation, model(), TRAINING, out=out, record=["federaser"], keep=2)


@pytest.fixture
def forgotten(federation: fupareto.Federation, trained: fupareto.Result, tmp_path: Path) -> fupareto.Result:
    return fupareto.unlearn(federation, trained, ["b"], METHOD, out=tmp_path / "forgotten")


def path_of(result: fupareto.Result) -> Path:
    assert isinstance(result.place, Run)
    return result.place.path


def file_of(result: fupareto.Result, tmp_path: Path) -> Path:
    safetensors.torch.save_file(result.model(), tmp_path / "w0.safetensors")
    return tmp_path / "w0.safetensors"


def module_of(result: fupareto.Result) -> nn.Module:
    module = model()
    module.load_state_dict(result.model())
    return module


FORMS: dict[str, Callable[[fupareto.Result, Path], Any]] = {
    "module": lambda result, _: module_of(result),
    "state dict": lambda result, _: module_of(result).state_dict(),
    "flat tensor": lambda result, _: result.outcome.model("initial"),
    "file": file_of,
    "name of a file": lambda result, tmp_path: str(file_of(result, tmp_path)),
    "run directory": lambda result, _: path_of(result),
    "name of a run directory": lambda result, _: str(path_of(result)),
    "result": lambda result, _: result,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_model_in_any_form(
    form: str, federation: fupareto.Federation, trained: fupareto.Result, tmp_path: Path
) -> None:
    w0 = FORMS[form](trained, tmp_path)
    found = fupareto.unlearn(federation, w0, ["a"], METHOD).outcome.model("recovered")
    wanted = fupareto.unlearn(federation, module_of(trained), ["a"], METHOD).outcome.model("recovered")
    assert found is not None
    assert wanted is not None
    assert torch.equal(found, wanted)
    retrained = fupareto.unlearn(federation, trained, ["a"], Retrain(rounds=1), out=tmp_path / "again")
    audit = fupareto.unlearn(federation, w0, ["a"], METHOD).audit(reference=FORMS[form](retrained, tmp_path))
    assert audit["truth"]["retrained"]["r_acc"] is not None


@pytest.mark.parametrize(
    ("w0", "says"),
    [
        (7, "w0 must be an nn.Module, its state dict.* not a int"),
        (None, "w0 must be .* not a NoneType"),
        ([1.0, 2.0], "w0 must be .* not a list"),
        ({"0.weight": 3}, "w0 is not a state dict: '0.weight' is a int"),
        ({"weight": torch.zeros(3)}, "'0.weight' is missing in the weights"),
        ("nowhere.safetensors", "cannot read the model nowhere.safetensors"),
        (torch.zeros(3), "has shape"),
    ],
)
def test_models_of_wrong_types(federation: fupareto.Federation, w0: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        fupareto.unlearn(federation, w0, ["a"], METHOD)
    with pytest.raises(UserError, match=says):
        fupareto.train(federation, w0)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("fedods", "unknown method 'fedods'.*did you mean 'fedosd'"),
        ("fupareto:papre", "no preset 'papre'.*did you mean 'fupareto:paper'"),
        (FUPareto, r"method=FUPareto\(\), with parentheses"),
        (3, "a name such as .*not a int"),
    ],
)
def test_methods_of_wrong_types(federation: fupareto.Federation, method: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        fupareto.unlearn(federation, model(), ["a"], method)
    with pytest.raises(UserError, match=says):
        fupareto.train(federation, model(), method)


def test_other_wrong_types(federation: fupareto.Federation, forgotten: fupareto.Result) -> None:
    wrong: Any
    for wrong in ("federation", model(), None):
        with pytest.raises(UserError, match="federation must be a Federation"):
            fupareto.unlearn(wrong, model(), ["a"], METHOD)
    for wrong in (7, None, {"a": 1}):
        with pytest.raises(UserError, match="forget must be a list of client ids or a Request"):
            fupareto.unlearn(federation, model(), wrong, METHOD)
    for wrong in ("model", None):
        with pytest.raises(UserError, match=r"model must be an nn\.Module"):
            fupareto.simulate(wrong, clients())
    with pytest.raises(UserError, match="clients must be a mapping from client id"):
        fupareto.simulate(model(), list(clients().values()))  # type: ignore[arg-type]
    wrong = "fedavg"
    with pytest.raises(UserError, match=r"training must be FedAvg\(...\), not a str"):
        forgotten.audit(training=wrong)
    with pytest.raises(UserError, match=r"thresholds must be .* numbers by name"):
        forgotten.audit(thresholds=wrong)
    with pytest.raises(UserError, match=r"the threshold 'asrr' is unknown.*did you mean 'asr'"):
        forgotten.audit(thresholds={"asrr": 0.1})
    wrong = 7
    with pytest.raises(UserError, match="run must be the path of a run directory"):
        fupareto.audit(federation, wrong)
    with pytest.raises(UserError, match="there is no run directory"):
        fupareto.audit(federation, "nowhere")


def test_methods_by_name(federation: fupareto.Federation, trained: fupareto.Result) -> None:
    by_name = fupareto.unlearn(federation, trained, ["a"], "federaser")
    assert by_name.summary()["method"] == "federaser"
    method = by_name.place.config["method"]
    assert (method["lr"], method["batch_size"]) == (TRAINING.lr, TRAINING.batch_size)  # as the model was trained
    assert fupareto.train(federation, model(), "fedavg", measure_every=0).summary()["method"] == "fedavg"
    with pytest.raises(UserError, match="'fedosd' cannot train a model"):
        fupareto.train(federation, model(), "fedosd")


def test_a_model_can_be_loaded_strictly() -> None:
    """With counters of BatchNorm, frozen weights and tied ones, none of which are in the vector."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.frozen = nn.Linear(4, 4).requires_grad_(False)
            self.norm = nn.BatchNorm1d(4)
            self.last = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.norm(self.frozen(self.second(self.first(x)))))
            return out

    module = Tied()
    federation = fupareto.simulate(module, clients())
    result = fupareto.train(federation, module, FedAvg(rounds=1, lr=0.1, batch_size=8))
    loaded = Tied()
    loaded.load_state_dict(result.model(), strict=True)
    assert torch.equal(loaded.frozen.weight, module.frozen.weight)
    assert torch.equal(loaded.second.weight, loaded.first.weight)
    w = result.outcome.model("initial")
    assert w is not None
    assert torch.equal(federation.layout.flat(loaded.state_dict()), w)


def test_a_run_directory_is_finished_when_the_call_is(forgotten: fupareto.Result) -> None:
    path = path_of(forgotten)
    assert Run.open(path).finished
    assert Run.open(path).summary == forgotten.summary()
    assert Run.open(path).audit is None
    assert certify(path).is_file()
    with pytest.raises(UserError, match="has a certificate"):
        forgotten.audit()


def test_attacks_may_be_part_of_the_run(
    federation: fupareto.Federation, trained: fupareto.Result, tmp_path: Path
) -> None:
    result = fupareto.unlearn(federation, trained, ["b"], METHOD, out=tmp_path / "run", attack=True)
    during = Run.open(tmp_path / "run").audit
    assert during is not None
    after = fupareto.unlearn(federation, trained, ["b"], METHOD).audit()  # the same, asked for when the run had ended
    for part in ("membership", "exclusivity", "thresholds"):
        assert during[part] == after[part]
    assert during["verdict"]["checks"] == after["verdict"]["checks"]
    for stage, measured in result.summary()["stages"].items():
        assert measured["mia_auc"] == during["membership"][stage]["mean"]["confidence"]["auc"]


def test_retraining_as_the_model_was_trained(federation: fupareto.Federation, forgotten: fupareto.Result) -> None:
    found = forgotten.audit(retrain=True)
    assert "notes" not in found
    made = Run.open(path_of(forgotten) / "retrained")
    known = {key: value for key, value in asdict(TRAINING).items() if value is not None}
    assert made.config["method"] == {"name": "retrain", **known}
    assert found["truth"]["rounds"] == TRAINING.rounds
    assert found["relearning"] is not None
    again = fupareto.audit(federation, path_of(forgotten))  # what was retrained is found again
    assert again["truth"] == found["truth"]
    assert again["membership"] == found["membership"]


def test_two_retrained_models_and_further_training(
    federation: fupareto.Federation, trained: fupareto.Result, forgotten: fupareto.Result
) -> None:
    assert forgotten.audit()["dormancy"] is None  # the run had three rounds
    found = forgotten.audit(retrain=2, dormancy=3)
    assert (path_of(forgotten) / "retrained-2/summary.json").is_file()
    assert found["truth"]["retrained"] != found["truth"]["retrained-2"]
    assert found["dormancy"]["measure"] == "forget_acc"  # there is no mark
    assert found["dormancy"]["lr"] == TRAINING.lr
    again = fupareto.audit(federation, path_of(forgotten), dormancy=3)
    assert again | {"created": ""} == found | {"created": ""}
    alone = fupareto.unlearn(federation, trained, ["b"], METHOD).audit(retrain=2, dormancy=3)
    assert (alone["way"], alone["dormancy"]) == (found["way"], found["dormancy"])
    given = [path_of(forgotten) / name for name in ("retrained", "retrained-2")]
    other = fupareto.unlearn(federation, trained, ["b"], METHOD).audit(reference=given)
    assert other["truth"]["stages"] == found["truth"]["stages"]


def test_a_long_run_is_trained_on_by_default(federation: fupareto.Federation, trained: fupareto.Result) -> None:
    method = guard(rounds=40, recovery_rounds=1, lr=0.1)
    assert len(fupareto.unlearn(federation, trained, ["b"], method).rounds) >= 40
    found = fupareto.unlearn(federation, trained, ["b"], method).audit()
    assert found["dormancy"]["rounds"] == 40
    assert next(iter(found["dormancy"]["models"])) == "initial"
    unknown = fupareto.unlearn(federation, model(), ["b"], method)
    assert unknown.audit()["dormancy"] is None  # nobody knows how clients train
    with pytest.raises(UserError, match="how clients train is not known"):
        unknown.audit(dormancy=2)
    for wrong in (-1, 1.5, True):
        with pytest.raises(UserError, match="dormancy must be a number of rounds"):
            unknown.audit(dormancy=wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="retrain takes True, or a number"):
        unknown.audit(retrain=3)
    with pytest.raises(UserError, match="a list of two, not 3"):
        unknown.audit(reference=[model(), model(), model()])


def test_retraining_in_memory_is_the_same(
    federation: fupareto.Federation, trained: fupareto.Result, forgotten: fupareto.Result
) -> None:
    alone = fupareto.unlearn(federation, trained, ["b"], METHOD)
    found, stored = alone.audit(retrain=True), forgotten.audit(retrain=True)
    assert found["truth"]["retrained"] == stored["truth"]["retrained"]
    known = fupareto.unlearn(federation, trained.model(), ["b"], METHOD).audit(retrain=True, training=TRAINING)
    assert known["truth"]["retrained"] == stored["truth"]["retrained"]


def test_retraining_by_guess_is_said(federation: fupareto.Federation) -> None:
    result = fupareto.unlearn(federation, model(), ["b"], METHOD)
    with pytest.warns(UserWarning, match="FedAvg's defaults") as caught:
        found = result.audit(retrain=True)
    assert caught[0].filename == __file__
    assert "FedAvg's defaults" in found["notes"][0]
    assert found["truth"]["rounds"] == FedAvg().rounds


def test_a_stored_run_is_audited_with_the_federation_at_hand(
    federation: fupareto.Federation, forgotten: fupareto.Result, tmp_path: Path
) -> None:
    path, before = path_of(forgotten), forgotten.summary()
    loaded = fupareto.Result.load(federation, str(path))
    assert loaded.summary() == before
    assert loaded.rounds == forgotten.rounds
    assert all(torch.equal(t, forgotten.model()[name]) for name, t in loaded.model().items())
    found = fupareto.audit(federation, path, thresholds={"r_acc_loss": 0.5})
    assert found["thresholds"]["r_acc_loss"] == 0.5
    assert Run.open(path).audit == found
    after = Run.open(path).summary
    assert after["created"] == before["created"]
    assert after["stages"]["initial"]["mia_auc"] is not None
    assert 'id="membership"' in loaded.report(tmp_path / "page.html").read_text()


def test_stored_requests_for_samples_and_classes(
    federation: fupareto.Federation, trained: fupareto.Result, tmp_path: Path
) -> None:
    for name, request in (("rows", Request(samples={"a": (0, 3)})), ("class", Request(classes=(2,)))):
        result = fupareto.unlearn(federation, trained, request, METHOD, out=tmp_path / name)
        found = fupareto.audit(federation, tmp_path / name, retrain=True)
        assert set(found["membership"]["initial"]["clients"]) == set(result.outcome.sides[0])
        assert found["truth"] is not None
        second = fupareto.unlearn(federation, tmp_path / name, ["b"], METHOD)
        assert second.request == Request(("b",)).after(request)
        kept, whole = second.outcome.federation.digests(), federation.digests()
        assert kept["a"] != whole["a"]  # its forgotten data take part no more


def test_one_request_after_the_other(
    federation: fupareto.Federation, forgotten: fupareto.Result, tmp_path: Path
) -> None:
    for w0 in (forgotten, path_of(forgotten)):
        second = fupareto.unlearn(federation, w0, ["c"], METHOD)
        assert second.request == Request(("c",), left=("b",))
        assert "b" not in second.summary()["stages"]["initial"]["clients"]
        began = second.outcome.model("initial")
        kept = forgotten.outcome.model(forgotten.summary()["final"])
        assert began is not None
        assert kept is not None
        assert torch.equal(began, kept)
        with pytest.raises(UserError, match="no client 'b'"):
            fupareto.unlearn(federation, w0, ["b"], METHOD)
        with pytest.raises(UserError, match="training with these clients would undo that"):
            fupareto.train(federation, w0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert second.audit(retrain=True)["truth"]["rounds"] == TRAINING.rounds  # known through two requests


def test_references_that_knew_too_much(
    federation: fupareto.Federation, trained: fupareto.Result, forgotten: fupareto.Result, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="was trained on the forgotten data"):
        forgotten.audit(reference=trained)
    with pytest.raises(UserError, match='not a run of method "retrain"'):
        forgotten.audit(reference=forgotten)
    other = fupareto.unlearn(federation, trained, ["c"], Retrain(rounds=1))
    with pytest.raises(UserError, match="retrained for another request"):
        forgotten.audit(reference=other)
    without = {name: data for name, data in clients().items() if name != "b"}
    alone = fupareto.train(fupareto.simulate(model(), without), model(), TRAINING)
    assert forgotten.audit(reference=alone)["truth"]["rounds"] == TRAINING.rounds


def test_a_run_that_is_not_finished(federation: fupareto.Federation, tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fupareto.unlearn(federation, model(), ["a"], METHOD, out=tmp_path / "run", watch=stop)
    with pytest.raises(UserError, match=r"is not finished; continue it with .*resume=True"):
        fupareto.audit(federation, tmp_path / "run")
    with pytest.raises(UserError, match="is not finished; continue it with --resume"):
        fupareto.unlearn(federation, tmp_path / "run", ["b"], METHOD)


def test_a_run_whose_final_model_was_removed_cannot_be_followed(
    federation: fupareto.Federation, forgotten: fupareto.Result
) -> None:
    (path_of(forgotten) / f"{forgotten.summary()['final']}.safetensors").unlink()
    with pytest.raises(UserError, match=rf"{forgotten.summary()['final']}\.safetensors is missing"):
        fupareto.unlearn(federation, path_of(forgotten), ["c"], METHOD)
    relist(path_of(forgotten))
    with pytest.raises(UserError, match=rf"has no {forgotten.summary()['final']}\.safetensors"):
        fupareto.unlearn(federation, path_of(forgotten), ["c"], METHOD)


def test_training_settings_that_were_damaged_are_named(
    federation: fupareto.Federation, forgotten: fupareto.Result
) -> None:
    config = path_of(forgotten) / "config.toml"
    before, training = config.read_text().split("[training]")
    assert training.count("epochs = 1") == 1
    config.write_text(f"{before}[training]{training.replace('epochs = 1', 'epochs = -1')}")
    relist(config.parent)
    with pytest.raises(UserError, match=r"config\.toml are damaged: epochs must be above 0"):
        fupareto.unlearn(federation, path_of(forgotten), ["c"], METHOD)
