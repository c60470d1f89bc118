"""The figures of a bench: what is on them, and that they bear many methods."""

from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.text import Text

from fupareto.report.bench import figures, looks
from fupareto.report.labels import label
from fupareto.report.style import applied, canvas

METHODS = (
    "Retraining",
    "FedEraser",
    "FUPGA",
    "FedEditor",
    "MoDe",
    "FedAU",
    "FUGAS",
    "FedOSD",
    "s=1",
    "s=3",
    "s=5",
    "M1",
)


def stage(asr: float | None, r_acc: float) -> dict[str, Any]:
    return {"asr": asr, "r_acc": r_acc, "r_acc_std": 0.1, "forget_acc": 0.4, "distance": 2.0}


@pytest.fixture
def results() -> dict[str, Any]:
    cells = []
    for k, name in enumerate(METHODS):
        stages = {"initial": stage(0.8, 0.9), "unlearned": stage(0.002 * k, 0.85), "recovered": stage(0.002 * k, 0.88)}
        cells.append({"setting": "CN=5", "seed": 0, "label": name, "status": "complete", "stages": stages})
    methods = [{"label": name, "method": name.lower(), "paper": ""} for name in METHODS]
    methods[0]["method"] = "retrain"
    return {
        "title": "Digits <1>",
        "scale": "full",
        "paper": "",
        "settings": [{"name": "CN=5", "seeds": [0], "paper": {}}],
        "methods": methods,
        "cells": cells,
    }


def rounds(count: int, recovery: int = 0, asr: float | None = 0.1) -> list[dict[str, Any]]:
    names = ["unlearned"] * count + ["recovered"] * recovery
    return [
        {"round": n, "stage": name, "asr": asr, "r_acc": 0.8, "distance": 0.1 * n} for n, name in enumerate(names, 1)
    ]


@pytest.fixture
def curves() -> figures.Curves:
    return {"CN=5": {name: [rounds(10, 5), rounds(10, 5)] for name in METHODS}}


def texts(svg: bytes) -> set[str]:
    return {element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")}


def test_files(results: Any, curves: figures.Curves) -> None:
    found = figures.files(results, curves, "CN=5")
    assert list(found) == ["convergence.svg", "convergence.png", "pareto.svg", "pareto.png"]
    assert all(found[name].startswith(b"\x89PNG") for name in found if name.endswith("png"))
    words = texts(found["convergence.svg"])
    assert {*METHODS, "initial model", "recovery begins", "round", "Digits <1>: CN=5"} <= words
    assert "R-Acc (higher is better)" in words
    assert {*METHODS, "w0", "before recovery", "Better is up and to the left"} <= texts(found["pareto.svg"])
    assert b"DejaVu Sans', sans-serif" in found["pareto.svg"]


def test_what_was_not_measured_is_not_drawn(results: Any) -> None:
    results["cells"] = []
    assert figures.files(results, {}, "CN=5") == {}


def test_without_a_trigger_the_forget_accuracy_is_drawn(results: Any, curves: Any) -> None:
    for cell in results["cells"]:
        for measured in cell["stages"].values():
            measured["asr"] = None
    figure = figures.pareto(results, "CN=5")
    assert figure is not None
    assert figure.axes[0].get_xlabel().startswith("Forget accuracy")
    figure = figures.convergence(results, {"CN=5": {"FedOSD": [rounds(3, asr=None)]}}, "CN=5")
    assert figure is not None
    assert [t.get_text() for t in figure.axes[0].texts] == ["not measured"]


def test_methods_do_not_differ_by_colour_alone(results: Any) -> None:
    drawn = [looks.look(results, name) for name in METHODS]
    assert len({look["marker"] for look in drawn}) == len(METHODS)


def test_the_mean_over_seeds_holds_what_has_ended() -> None:
    first = [{"round": n, "stage": "unlearned", "asr": value} for n, value in ((1, 0.4), (2, 0.2))]
    second = [{"round": n, "stage": "unlearned", "asr": value} for n, value in ((1, 0.2), (2, 0.1), (3, 0.0))]
    found = figures.mean([first, second], "asr")
    assert [x for x, _ in found] == [1, 2, 3]
    assert [y for _, y in found] == pytest.approx([0.3, 0.15, 0.1])
    assert figures.mean([], "asr") == figures.mean([first], "r_acc") == []


@pytest.mark.parametrize(("long", "edge", "name"), [(20, 20, "Retraining"), (400, 15, "Retraining (to 400)")])
def test_a_long_retraining_is_cut(results: Any, curves: Any, long: int, edge: int, name: str) -> None:
    curves["CN=5"]["Retraining"] = [rounds(long)]
    figure = figures.convergence(results, curves, "CN=5")
    assert figure is not None
    assert figure.axes[0].get_xlim() == (0, edge + 1)
    assert name in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_method_that_diverges_does_not_flatten_the_others(results: Any, curves: Any) -> None:
    plain = figures.convergence(results, curves, "CN=5")
    curves["CN=5"]["FUPGA"] = [[{**r, "distance": 1e9 if r["round"] > 2 else 1.0} for r in rounds(5)]]
    far = figures.convergence(results, curves, "CN=5")
    assert plain is not None
    assert far is not None
    assert (plain.axes[2].get_yscale(), far.axes[2].get_yscale()) == ("linear", "log")
    words = [[text.get_text() for text in f.axes[2].findobj(Text)] for f in (plain, far)]
    assert ["Distance from the initial model (logarithmic)" in w for w in words] == [False, True]
    assert not [word for word in texts(figures.files(results, curves, "CN=5")["convergence.svg"]) if "$" in word]


def test_recovery_begins_where_it_begins(results: Any) -> None:
    figure = figures.convergence(results, {"CN=5": {"FedOSD": [rounds(6, 4), rounds(10, 4)]}}, "CN=5")
    assert figure is not None
    (tick,) = [line for line in figure.axes[0].lines if line.get_marker() == "|"]
    assert np.asarray(tick.get_xdata()).tolist() == [9]  # round 7 with one seed, 11 with the other
    without = figures.convergence(results, {"CN=5": {"FedOSD": [rounds(6)]}}, "CN=5")
    assert without is not None
    assert "recovery begins" not in [text.get_text() for text in without.legends[0].get_texts()]


def test_the_small_scale_is_named(results: Any, curves: figures.Curves) -> None:
    results["scale"] = "small"
    assert "Digits <1>: CN=5 (small scale)" in texts(figures.files(results, curves, "CN=5")["convergence.svg"])
    figure = figures.convergence(results, curves, "CN=5", looks.Frame(heading=""))
    assert figure is not None
    assert figure.get_suptitle() == ""


def test_names_cover_neither_each_other_nor_marks() -> None:
    """Twelve marks in a corner, as they lie when every method is good."""
    places = [(0.1 + 0.05 * (k % 4), 0.8 + 0.03 * (k // 4)) for k in range(12)]
    with applied():
        figure = canvas(9, 6)
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        figure.draw_without_rendering()
        label(axes, [(f"method {k}", place, "#000000") for k, place in enumerate(places)], places)
        figure.draw_without_rendering()
        boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the leader
        for one, other in combinations(boxes, 2):
            assert not one.padded(-2).overlaps(other)
        for place in places:
            assert not any(box.contains(*axes.transData.transform(place)) for box in boxes)
        assert all(axes.bbox.padded(2).contains(box.x0, box.y0) for box in boxes)
