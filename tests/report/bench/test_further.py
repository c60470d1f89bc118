"""The figures of what further training brings back."""

from typing import Any

import numpy as np
import pytest
from matplotlib.lines import Line2D

from fupareto.report.bench import figures, further

LABELS = ("One", "Two")


def told(curve: list[float | None], barrier: float) -> dict[str, Any]:
    return {"curve": curve, "later": max(v for v in curve[1:] if v is not None), "barrier": barrier}


def xs(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def ys(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


@pytest.fixture
def results() -> dict[str, Any]:
    stage = {"asr": 0.1, "r_acc": 0.9, "r_acc_std": 0.1, "forget_acc": 0.4, "distance": 2.0}
    cells = []
    for seed in (0, 1):
        for k, label in enumerate(LABELS):
            models = {
                "initial": told([0.8, 0.7, 0.6], 0.0),
                "retrained": {**told([0.0, 0.01, 0.0], 3.0), "distance": 20.0},
                "unlearned": told([0.0, 0.2 * k + 0.1 * seed, 0.1], 1.0 - k),
            }
            cell = {"setting": "S", "seed": seed, "label": label, "status": "complete", "final": "unlearned"}
            stages = {"initial": {**stage, "distance": 0.0}, "unlearned": stage}
            cells.append({**cell, "stages": stages, "lasting": {"models": models}})
    methods = [{"label": label, "method": "fedosd", "paper": ""} for label in LABELS]
    settings = [{"name": "S", "seeds": [0, 1], "paper": {}}]
    return {"title": "T", "scale": "full", "paper": "", "settings": settings, "methods": methods, "cells": cells}


def test_curves_are_means_over_seeds_and_shared_models_are_drawn_once(results: dict[str, Any]) -> None:
    found = further.models(results, "S")
    assert list(found) == ["w0", "retrained", "One", "Two"]
    assert [len(seeds) for seeds in found.values()] == [2, 2, 2, 2]
    assert further.mean_curve(found["Two"]) == pytest.approx([0.0, 0.25, 0.1])
    figure = further.lasting(results, "S")
    assert figure is not None
    lines = {line.get_label(): ys(line) for line in figure.axes[0].lines}
    assert lines["Two"] == pytest.approx([0.0, 0.25, 0.1])
    assert lines["w0"] == pytest.approx([0.8, 0.7, 0.6])


def test_reversion_is_what_comes_back_over_distance_and_barrier(results: dict[str, Any]) -> None:
    figure = further.reversion(results, "S")
    assert figure is not None
    across, rises = ([[data(line)[0] for line in axes.lines] for axes in figure.axes] for data in (xs, ys))
    assert across == [[0.0, 20.0, 2.0, 2.0], [0.0, 3.0, 1.0, 0.0]]
    assert all(own == pytest.approx([-0.1, 0.01, 0.1, 0.25]) for own in rises)


def test_nothing_is_drawn_where_nothing_was_measured(results: dict[str, Any]) -> None:
    for cell in results["cells"]:
        cell["lasting"]["models"]["unlearned"]["curve"] = [0.0, None, 0.1]
    figure = further.lasting(results, "S")
    assert figure is not None
    assert [line.get_label() for line in figure.axes[0].lines] == ["w0", "retrained"]
    for cell in results["cells"]:
        cell["lasting"] = {}
    assert further.lasting(results, "S") is None
    assert further.reversion(results, "S") is None
    assert not any(name.startswith(("lasting", "reversion")) for name in figures.files(results, {}, "S"))
