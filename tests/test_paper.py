"""The paper's numbers: found by the words of a bench file, and never where the paper prints none."""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fupareto import paper
from fupareto.errors import UserError

FMNIST5 = {"dataset": "FMNIST", "CN": 5}


@pytest.mark.parametrize(
    ("row", "column", "stage", "printed"),
    [
        ("w0", FMNIST5, "initial", (0.840, 0.854, 0.099)),
        ("Retraining", {"dataset": "GTSRB", "CN": 1}, "unlearned", (0.004, 0.861, 0.065)),
        ("FedOSD", FMNIST5, "unlearned", (0.034, 0.861, 0.088)),
        ("FedOSD", FMNIST5, "recovered", (0.044, 0.857, 0.090)),
        ("FUPareto (s=3)", {"dataset": "CIFAR-100", "CN": 5}, "unlearned", (0.018, 0.460, 0.041)),
        ("FUPareto s=3", {"dataset": "cifar100", "CN": 5}, "unlearned", (0.018, 0.460, 0.041)),
        ("fupareto s=5", FMNIST5, "recovered", (0.012, 0.883, 0.083)),
    ],
)
def test_cells_of_table_1(row: str, column: dict[str, Any], stage: str, printed: tuple[float, ...]) -> None:
    found = paper.cell("table1", row, column, stage)
    assert found is not None
    assert (found["asr"], found["r_acc"], found["r_acc_std"]) == printed


@pytest.mark.parametrize("stage", ["unlearned", "recovered"])
def test_the_ablation_stands_beside_both_stages(stage: str) -> None:
    """The paper does not say which of them it measured."""
    found = paper.cell("ablation", "M5", {"dataset": "CIFAR-10"}, stage)
    assert found == {"asr": 0.0, "r_acc": 0.436, "r_acc_std": 0.193}


@pytest.mark.parametrize(
    ("table", "row", "column", "stage"),
    [
        ("table1", "Retraining", FMNIST5, "recovered"),  # has no recovery
        ("table1", "FUPareto", FMNIST5, "unlearned"),  # which s?
        ("table1", "FedOSD", {"dataset": "FMNIST"}, "unlearned"),  # which CN?
        ("table1", "FedOSD", {}, "unlearned"),
        ("table1", "", FMNIST5, "unlearned"),
        ("table1", "M1", FMNIST5, "unlearned"),
        ("", "FedOSD", FMNIST5, "unlearned"),
        ("table1", "w0", FMNIST5, "unlearned"),
    ],
)
def test_no_cell_is_made_up(table: str, row: str, column: dict[str, Any], stage: str) -> None:
    assert paper.cell(table, row, column, stage) is None


def test_names_are_checked() -> None:
    paper.check("table1", ["FedOSD", "", "FUPareto s=1"], [FMNIST5, {}])
    paper.check("ablation", ["M8"], [{"dataset": "FMNIST", "CN": 3}])
    paper.check("", [""], [{}])
    with pytest.raises(UserError, match=r"no row 'FedOSDD'; it has w0, Retraining, .*FUPareto \(s=5\)"):
        paper.check("table1", ["FedOSDD"], [])
    with pytest.raises(UserError, match=r"no column \{'dataset': 'FMNIST', 'CN': 2\}; it has .*'CN': 5"):
        paper.check("table1", [], [{"dataset": "FMNIST", "CN": 2}])
    with pytest.raises(UserError, match="does not name a table"):
        paper.check("", ["FedOSD"], [])


def summary(**changes: Any) -> dict[str, Any]:
    stages = {stage: {"asr": 0.5} for stage in ("initial", "unlearned", "recovered")}
    clients = [str(i) for i in range(20)]
    return {
        "method": "fedosd",
        "dataset": "fashion-mnist",
        "clients": clients,
        "forget": clients[:5],
        "stages": stages,
        **changes,
    }


def test_a_run_of_the_papers_setting_has_its_cells() -> None:
    found = paper.beside(summary(), {})
    assert {stage: cell["asr"] for stage, cell in found.items()} == {
        "initial": 0.840,
        "unlearned": 0.034,
        "recovered": 0.044,
    }
    for name in ("fupareto", "fupareto:guard", "fupareto:paper"):
        pareto = paper.beside(summary(method=name), {"s": 5})
        assert (pareto["unlearned"]["asr"], pareto["recovered"]["asr"]) == (0.008, 0.012)


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "digits"},
        {"clients": [str(i) for i in range(10)]},
        {"forget": ["0", "1"]},
        {"stages": {"initial": {"asr": None}, "unlearned": {"asr": None}}},
    ],
)
def test_a_run_of_another_setting_has_none(changes: dict[str, Any]) -> None:
    assert paper.beside(summary(**changes), {}) == {}


@pytest.mark.parametrize("method", ["fedavg", "fedosd, one by one", "fupareto:m1", "fupareto"])
def test_a_method_that_the_paper_lacks_has_only_the_initial_model(method: str) -> None:
    assert list(paper.beside(summary(method=method), {"s": 2})) == ["initial"]


def test_the_numbers_are_installed_with_the_package() -> None:
    assert files("fupareto").joinpath("paper.json").is_file()
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert "paper.json" in project["tool"]["setuptools"]["package-data"]["fupareto"]
    assert paper.citation() == "FUPareto, arXiv 2602.01852"
