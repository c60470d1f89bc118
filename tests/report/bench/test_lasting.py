"""The table of lasting forgetting: means over seeds, and how many seeds they are over."""

from typing import Any

import pytest

from fupareto.report.bench.lasting import lasting

LABELS = ("One", "Two")


def cell(label: str, seed: int, way: float | None) -> dict[str, Any]:
    stage = {"asr": 0.1, "r_acc": 0.9, "r_acc_min": 0.8, "r_acc_std": 0.1, "forget_acc": 0.4, "distance": 2.0}
    told = {"later": 0.1 * seed, "relearning": 0.5, "loss": 0.6, "divergence": 0.02}
    return {
        "setting": "S",
        "seed": seed,
        "label": label,
        "status": "complete",
        "final": "unlearned",
        "stages": {"initial": stage, "unlearned": stage},
        "cost": {"rounds": 10, "bytes_up": 1e6, "bytes_down": 2e6},
        "lasting": {
            "models": dict.fromkeys(("initial", "unlearned", "retrained", "retrained-2"), told),
            "way": {"later": 1.0, "relearning": 0.5, "loss": way, "divergence": None},
            "rounds": 40,
            "retraining": {"rounds": 30, "bytes_up": 1e6, "bytes_down": 2e6},
        },
    }


def rows(cells: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    methods = [{"label": label, "method": "fedosd", "paper": ""} for label in LABELS]
    settings = [{"name": "S", "seeds": [1, 2, 3], "paper": {}}]
    [sheet] = lasting({"title": "T", "settings": settings, "methods": methods, "cells": cells})
    heads = [name for _, name in sheet.columns]
    return {row[0]: dict(zip(heads, row, strict=True)) for row in sheet.rows}


@pytest.fixture
def cells() -> list[dict[str, Any]]:
    return [cell(label, seed, 1.2 if seed == 2 else None) for label in LABELS for seed in (1, 2, 3)]


def test_a_mean_over_some_of_the_seeds_says_so(cells: list[dict[str, Any]]) -> None:
    row = rows(cells)["One"]
    assert row["later"] == "0.200"
    assert row["way: relearning"] == "50 %"
    assert row["way: loss"] == "120 % (1 of 3)"
    assert row["way: divergence"] == "–"
    assert (row["rounds"], row["MB"], row["apart"]) == ("10", "3", "1.0 ×")


def test_a_method_that_lacks_seeds_says_so(cells: list[dict[str, Any]]) -> None:
    two = [c for c in cells if c["label"] == "Two" and c["seed"] != 3]
    without = [{"setting": "S", "seed": 3, "label": "Two", "method": "fedosd", "status": "diverged", "error": "."}]
    found = rows([c for c in cells if c["label"] == "One"] + two + without)
    assert list(found) == ["w0", "retrained", "One", "Two (2 of 3 seeds)"]
    assert found["Two (2 of 3 seeds)"]["later"] == "0.150"
