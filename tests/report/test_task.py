"""A task's own numbers, in the terminal and on the page."""

import re
from typing import Any

import pytest
from rich.console import Console

from fupareto.report import render
from fupareto.report.terminal import task_table

from .conftest import make_rounds, make_summary


def run(name: str = "perplexity") -> tuple[dict[str, Any], dict[str, Any]]:
    summary = make_summary()
    summary["task"] = {"name": "tokens"}
    for k, stage in enumerate(summary["stages"].values()):
        stage["measures"] = {"retained": {name: 7.25 + k}, "forget": {name: 3.5 + k, "token_accuracy": 0.25}}
    retrained = {**summary["stages"]["initial"], "measures": {"retained": {name: 8.125}}}
    return summary, {"truth": {"retrained": retrained}}


def shown(summary: dict[str, Any], audit: dict[str, Any] | None) -> str:
    console = Console(width=80, record=True)
    table = task_table(summary, audit)
    assert table is not None
    console.print(table)
    return console.export_text()


def test_the_terminal_has_a_row_per_number_and_a_column_per_model() -> None:
    text = shown(*run())
    lines = [re.split(r"\s*[│┃]\s*", line)[1:-1] for line in text.splitlines() if "perplexity" in line]
    assert lines == [
        ["perplexity", "retained", "7.25", "8.25", "9.25", "8.125"],
        ["perplexity", "forget", "3.5", "4.5", "5.5", "–"],
    ]
    assert "25.0%" in text
    assert "retrained" in text
    assert "retrained" not in shown(run()[0], None)


def test_classes_have_none() -> None:
    assert task_table(make_summary()) is None
    assert 'id="task"' not in render(make_summary(), make_rounds(), {})


@pytest.mark.parametrize("name", ["perplexity", "<b>mine</b>"])
def test_the_page_has_them_with_the_place_they_come_from(name: str) -> None:
    summary, audit = run(name)
    page = render(summary, make_rounds(), {}, audit if name == "perplexity" else None)
    assert "Task tokens" in page
    assert 'href="#task"' in page
    assert "<b>mine" not in page
    if name == "perplexity":
        for key, value in (("stages.initial.measures.forget.perplexity", "3.5"),):
            assert f'data-key="{key}" data-value="{value}"' in page
        assert 'data-key="audit.truth.retrained.measures.retained.perplexity" data-value="8.125"' in page
