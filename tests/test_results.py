"""Is what docs/results.md says what was measured? Its tables are held against the result files that they name."""

import json
from pathlib import Path

import pytest

from fupareto.report.bench.aggregate import aggregate

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "results.md").read_text()
LINES = [line.replace("*", "") for line in PAGE.splitlines() if line.startswith("|")]
TABLES = (
    *("table1-fmnist", "table1-gtsrb", "table1-cifar100", "convergence-cifar10", "ablation-fmnist", "fupga-fmnist"),
    *("sequential-fmnist", "heterogeneity-fmnist", "population-fmnist"),
)


def short(value: float | None) -> str:
    assert value is not None
    return f"{value:.3f}".removeprefix("0")


@pytest.mark.parametrize("name", TABLES)
def test_every_measured_row_stands_on_the_page(name: str) -> None:
    rows = aggregate(json.loads((ROOT / "results" / f"{name}.json").read_text()))
    assert rows
    for row in rows:
        cell = f"{short(row.mean['asr'])} / {short(row.mean['r_acc'])}"
        assert any(line.startswith(f"| {row.label}") and cell in line for line in LINES), (row.label, row.stage, cell)


def test_every_result_file_is_named_on_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    for path in (ROOT / "results").glob("*.json"):
        assert f"results/{path.name}" in pages
