"""Methods by what the user typed: names, presets, own classes, and what is wrong with the rest."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.experiment.setting import forgetter, training
from fupareto.methods import FedAvg, FUPareto
from fupareto.methods.registry import METHODS, chosen, find, kind
from fupareto.methods.renew import Renew

OWN = """
from dataclasses import dataclass
from typing import ClassVar
from fupareto.methods import FedAvg
from fupareto.methods.base import Method

@dataclass(frozen=True)
class Mine(FedAvg):
    name: ClassVar[str] = "mine"
    extra: int = 3

@dataclass(frozen=True)
class Needs(FedAvg):
    name: ClassVar[str] = "needs"
    def __post_init__(self): raise ValueError("the moon is not full")

class Half(Method):
    name = "half"

def function(): pass
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / "broken_method.py").write_text("def x(:\n")
    (tmp_path / "angry_method.py").write_text("raise RuntimeError('not today')\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def options(method: Any) -> dict[str, Any]:
    return dataclasses.asdict(method)


def test_names() -> None:
    compared = {"retrain", "federaser", "fupga", "fededitor", "mode", "fedau", "fugas", "fedosd"}  # PROTOCOL B
    compared |= {"not", "finetune", "rewind", "ridge"}
    assert set(METHODS) == {"fupareto", "renew", "fedavg", *compared}
    assert all(cls.name == name for name, cls in METHODS.items())
    assert find("fupareto") == FUPareto()
    assert find("fedavg", {"lr": 1}) == FedAvg(lr=1)
    assert find("fupareto:guard", {"recovery_lr": 0.5}).budget == 200
    assert find("fupareto").budget == 75  # a quarter of FedAvg's 200 rounds, 15 if clients lose accuracy, and 10
    assert find("fupareto").expected == 60


def test_a_class_is_found_whatever_the_preset() -> None:
    for name in ("fupareto", "fupareto:paper", "fupareto:m2", "fupareto:nonsense"):
        assert kind(name) is FUPareto
    assert issubclass(kind("fupareto:m1"), FUPareto)
    with pytest.raises(UserError, match="unknown method 'fuparetto'"):
        kind("fuparetto")


def test_what_a_method_takes_from_the_training_is_an_option_of_both() -> None:
    training = {*Experiment().train.model_dump(), "training"}
    for name, cls in METHODS.items():
        assert set(cls.from_training) <= training & {f.name for f in dataclasses.fields(cls)}, name


def test_options_override_a_preset() -> None:
    assert options(find("fupareto:paper", {"armijo": "descent"})) == {
        **options(find("fupareto:paper")),
        "armijo": "descent",
    }


def test_every_method_can_be_stored_and_made_again() -> None:
    for name, cls in METHODS.items():
        for full in (name, *(f"{name}:{preset}" for preset in cls.presets)):
            stored = json.loads(json.dumps(options(find(full))))
            assert find(name, stored) == find(full)


TRAINING = FedAvg(rounds=50, lr=0.7, batch_size=11)


@pytest.mark.parametrize("name", ["fupareto", "renew", "fupareto:guard"])
def test_a_method_by_name_knows_the_training(name: str) -> None:
    for method in (find(name, training=TRAINING), chosen(name, FUPareto, TRAINING)[0]):
        assert options(method)["training"] == options(TRAINING)
    changed = find(name, {"training": {"lr": 0.1}}, TRAINING)
    assert options(changed)["training"] == {**options(TRAINING), "lr": 0.1}
    assert find(name.partition(":")[0], json.loads(json.dumps(options(changed)))) == changed
    assert options(find(name, {"training": {"lr": 0.1}}))["training"] == options(FedAvg(lr=0.1))


def test_a_method_as_an_object_learns_the_training_unless_it_says_it() -> None:
    assert chosen(FUPareto(rounds=3), FUPareto, TRAINING)[0] == FUPareto(rounds=3, training=TRAINING)
    own = Renew(training=FedAvg(rounds=9))
    assert chosen(own, FUPareto, TRAINING)[0] is own
    assert chosen(FUPareto(), FUPareto)[0] == FUPareto()
    assert chosen(FedAvg(), FedAvg, TRAINING)[0] == FedAvg()


def test_an_experiment_file_can_change_single_settings_of_the_training() -> None:
    unlearn = {"method": "fupareto", "options": {"training": {"lr": 0.3}, "rounds": 4}}
    file = Experiment.model_validate({"train": {"rounds": 40, "epochs": 2}, "unlearn": unlearn})
    asked = forgetter(file, "fupareto", {"training": {"batch_size": 7}})
    expected = dataclasses.replace(training(file), lr=0.3, batch_size=7)
    assert options(asked)["training"] == options(expected)
    assert asked.budget == 10 + 3 + 4
    assert options(forgetter(file, "renew", {}))["training"] == options(training(file))


def test_own_class(own: str) -> None:
    mine = find(f"{own}:Mine", {"extra": 5, "rounds": 2})
    assert (mine.name, mine.budget, options(mine)["extra"]) == ("mine", 2, 5)
    assert isinstance(mine, FedAvg)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        (
            "fuparetto",
            {},
            "unknown method 'fuparetto'; there are fupareto, renew, retrain, rewind, ridge, federaser, fupga, ",
        ),
        ("fuparetto", {}, "fedau, fugas, fedosd, not, finetune, fedavg, or package.module:Class"),
        ("", {}, "unknown method ''"),
        ("fupareto:papers", {}, "no preset 'papers'; there are: fupareto:guard, fupareto:m1, "),
        ("fedavg:paper", {}, "no preset 'paper'; there are: none"),
        (":Mine", {}, "could not be imported"),
        (".relative:Mine", {}, "could not be imported"),
        ("no_such_module:Mine", {}, "could not be imported: ModuleNotFoundError"),
        ("broken_method:Mine", {}, "could not be imported: SyntaxError"),
        ("angry_method:Mine", {}, "could not be imported: RuntimeError: not today"),
        ("OWN:Absent", {}, "could not be imported: AttributeError"),
        ("OWN:function", {}, "not a subclass of fupareto.methods.base.Method"),
        ("OWN:Half", {}, "abstract"),
        ("OWN:Needs", {}, "the moon is not full"),
        ("OWN:Mine", {"extar": 1}, "did you mean 'extra'?"),
        ("fupareto", {"round": 3}, "did you mean 'rounds'?"),
        ("fupareto", {"zzz": 3}, "it has renewal, renewal_remains, renewal_momentum"),
        ("fupareto", {"lr": "x"}, "lr must be a finite number, not 'x'"),
        ("fupareto", {"lr": float("nan")}, "lr must be a finite number"),
        ("fupareto", {"s": True}, "s must be a whole number, not True"),
        ("fupareto", {"s": 1.0}, "s must be a whole number, not 1.0"),
        ("fupareto", {"rescale": 1}, "rescale must be true or false, not 1"),
        ("fupareto", {"loss": "ce"}, "loss must be one of 'mbs', 'uce', 'kl', 'reverse-kl', not 'ce'"),
        ("fupareto", {"recovery_lr": "x"}, "recovery_lr must be a finite number or left out"),
        ("fupareto", {"recovery_lr": 0}, "recovery_lr must be above 0"),
        ("fupareto", {"s": -1}, "s must lie between"),
        ("fedavg", {"epochs": 0}, "epochs must be above 0"),
        (
            "fupareto",
            {"training": {"rate": 1}},
            "option 'training': method 'fedavg' has no option 'rate'; it has rounds",
        ),
        ("renew", {"training": {"epoch": 1}}, "did you mean 'epochs'?"),
        ("renew", {"training": {"lr": 0}}, "option 'training': lr must be above 0"),
        ("renew", {"training": {"lr": "x"}}, "option 'training': lr must be a finite number, not 'x'"),
        ("fupareto", {"training": 3}, "training must be a table of FedAvg's options or left out, not 3"),
        ("fedosd", {"training": {}}, "has no option 'training'"),
    ],
)
def test_wrong_ones_are_refused(own: str, name: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        find(name.replace("OWN", own), given)
    assert says in str(caught.value)
