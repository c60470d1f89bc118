"""Experiment files: what the repository ships loads, the demo's file is the default, and mistakes are explained."""

import tomllib
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from fupareto import config
from fupareto.config import Experiment
from fupareto.errors import UserError
from fupareto.experiment import default_request
from fupareto.methods.registry import find

SHIPPED = sorted((Path(__file__).parents[1] / "experiments").glob("*.toml"))
EXPERIMENTS = [path for path in SHIPPED if "methods" not in tomllib.loads(path.read_text())]  # the others are benches


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_shipped_experiment_loads(path: Path) -> None:
    experiment = config.load(path)
    assert experiment.name == path.stem
    assert len(default_request(experiment).clients) < experiment.partition.clients
    find(experiment.unlearn.method, experiment.unlearn.options)


def test_demo_file_spells_out_the_defaults() -> None:
    (path,) = [path for path in EXPERIMENTS if path.stem == "demo"]
    assert config.load(path) == Experiment()
    top, *parts = path.read_text().split("\n[")
    sections = {part.partition("]")[0]: part for part in parts}
    for name, section in Experiment().model_dump().items():
        text = sections[name] if isinstance(section, dict) else top
        for key in section if isinstance(section, dict) else (name,):
            assert f"\n{key} = " in text or f"\n# {key} = " in text, f"{name}.{key}"


def test_demo_file_names_every_choice() -> None:
    (path,) = [path for path in EXPERIMENTS if path.stem == "demo"]
    lines = path.read_text().splitlines()
    for section in (field.annotation for field in Experiment.model_fields.values()):
        fields = section.model_fields if isinstance(section, type) and issubclass(section, BaseModel) else {}
        for key, field in fields.items():
            words = [word for part in (field.annotation, *get_args(field.annotation)) for word in choices(part)]
            held = [line for line in lines if line.startswith(f"{key} = ")]
            assert not words or any(all(word in line for word in words) for line in held), key


def choices(kind: object) -> tuple[str, ...]:
    """Return the words of a Literal; none of any other type."""
    return get_args(kind) if get_origin(kind) is Literal else ()


def test_an_empty_file_is_the_demo(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    assert config.load(tmp_path / "empty.toml") == Experiment()


def test_relative_samples_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('data.source = "sub/../mine.npz"')
    assert config.load(tmp_path / "a.toml").data.source == str(tmp_path / "mine.npz")
    (tmp_path / "a.toml").write_text('data.source = "/elsewhere/mine.npz"')
    assert config.load(tmp_path / "a.toml").data.source == "/elsewhere/mine.npz"


def test_ids_may_be_written_as_numbers() -> None:
    assert config.validate({"request": {"clients": [3, "7"]}}, "here").request.clients == ["3", "7"]


def test_drawn_clients_depend_on_the_seed_alone() -> None:
    drawn = [default_request(Experiment(seed=seed)).clients for seed in range(20)]
    assert drawn == [default_request(Experiment(seed=seed)).clients for seed in range(20)]
    assert len(set(drawn)) > 5
    assert all(len(set(clients)) == 2 for clients in drawn)


def test_what_is_written_is_read_back() -> None:
    experiment = config.validate({"seed": 3, "request": {"clients": ["1", "2"]}, "data": {"samples": 100}}, "here")
    assert config.validate(experiment.model_dump(), "there") == experiment


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"partition": {"alpha": -1}}, "here is not valid:\n  partition.alpha = -1: Input should be greater than 0"),
        ({"partition": {"alpha": float("inf")}}, "finite"),
        ({"request": {"clients": True}}, "request.clients = True"),
        ({"request": {"clients": [str(i) for i in range(10)]}}, "forgets 10 of 10 clients"),
        ({"backdoor": {"portion": 1.5}}, "less than or equal to 1"),
        ({"x": {"y": 1}}, "  x: unknown key"),
    ],
)
def test_mistakes_are_explained(raw: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as caught:
        config.validate(raw, "here")
    assert says in str(caught.value)
    assert "pydantic" not in str(caught.value)
