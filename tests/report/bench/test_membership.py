"""The membership table of a bench, worked out by hand."""

from typing import Any

import pytest

from fupareto.report.bench.membership import membership


def told(*aucs: float | None) -> dict[str, Any]:
    clients = {str(k): {"auc": auc, "low": 0.1, "high": 0.9} for k, auc in enumerate(aucs) if auc is not None}
    return {"clients": clients, "mean": {"auc": 0.5, "low": None, "high": None}}


def cell(seed: int, label: str, final: str, **attacked: Any) -> dict[str, Any]:
    place = {"setting": "CN=2", "seed": seed, "label": label, "status": "complete", "final": final}
    return {**place, "membership": attacked}


@pytest.fixture
def results() -> dict[str, Any]:
    first = told(0.91, 0.834)
    return {
        "title": "Digits",
        "settings": [{"name": "CN=2", "seeds": [4, 5]}, {"name": "CN=9", "seeds": [4]}],
        "methods": [{"label": "A"}, {"label": "B"}, {"label": "C"}],
        "cells": [
            cell(4, "A", "unlearned", initial=first, unlearned=told(0.5, 0.6), recovered=told(0.7, 0.7)),
            cell(4, "B", "recovered", initial=first, unlearned=told(0.5, 0.6), recovered=told(None, 0.7)),
            cell(5, "A", "unlearned", initial=told(0.8), unlearned=told(0.55)),
            {"setting": "CN=2", "seed": 4, "label": "C", "status": "not applicable"},
            {**cell(4, "A", "unlearned"), "setting": "CN=9"},
        ],
    }


def test_a_table_has_a_row_per_model_and_a_column_per_forget_client(results: Any) -> None:
    first, second = membership(results)  # nothing was attacked where CN=9
    assert [name for _, name in first.columns] == ["method", "model", "client 0", "client 1", "mean"]
    assert [name for _, name in second.columns] == ["method", "model", "client 0", "mean"]
    assert first.rows == [
        ["w0", "initial", "0.91 (0.10–0.90)", "0.83 (0.10–0.90)", "0.50"],
        ["A", "unlearned", "0.50 (0.10–0.90)", "0.60 (0.10–0.90)", "0.50"],  # the model that is kept
        ["B", "recovered", "–", "0.70 (0.10–0.90)", "0.50"],
    ]
    assert [row[:2] for row in second.rows] == [["w0", "initial"], ["A", "unlearned"]]
    assert [sheet.title for sheet in (first, second)] == [f"Digits: membership, CN=2, seed {seed}" for seed in (4, 5)]


def test_a_bench_without_attacks_has_no_table(results: Any) -> None:
    for found in results["cells"]:
        found.pop("membership", None)
    assert membership(results) == []
