"""The tables of a bench, worked out by hand from a small results.json."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from fupareto.report.bench import tables
from fupareto.report.sheet import Sheet, to_latex, to_markdown, to_rich


def stage(asr: float | None, r_acc: float) -> dict[str, Any]:
    return {"asr": asr, "r_acc": r_acc, "r_acc_std": 0.1, "forget_acc": 0.5, "distance": 2.0, "mia_auc": None}


def cell(setting: str, seed: int, label: str, asr: float | None, seconds: float = 2.0, both: bool = True) -> Any:
    stages = {"initial": stage(None if asr is None else 0.8, 0.9), "unlearned": stage(asr, 0.85)}
    if both:
        stages["recovered"] = stage(asr, 0.88)
    cost: dict[str, float] = {
        "rounds": 20,
        "passes": 360,
        "seconds": seconds,
        "bytes_up": 3e6,
        "bytes_down": 4e6,
        "storage": 0,
    }
    place = {"setting": setting, "seed": seed, "label": label, "method": label.lower()}
    return {**place, "status": "complete", "stages": stages, "cost": cost, "final": "unlearned", "forget": ["3"]}


def lacking(setting: str, seed: int, label: str) -> Any:
    return {
        "setting": setting,
        "seed": seed,
        "label": label,
        "status": "not applicable",
        "error": "needs | a _history_",
    }


@pytest.fixture
def results() -> dict[str, Any]:
    """FedOSD and Retraining on two seeds; FedAU only where one client is forgotten, and only on the first seed."""
    cells = []
    for setting in ("CN=1", "CN=5"):
        cells += [cell(setting, 9, "Retraining", 0.0, seconds=8.0, both=False)]
        cells += [cell(setting, 10, "Retraining", 0.01, seconds=12.0, both=False)]
        cells += [cell(setting, 9, "FedOSD", 0.02), cell(setting, 10, "FedOSD", 0.04)]
        cells += [cell(setting, 9, "FedAU", 0.5) if setting == "CN=1" else lacking(setting, 9, "FedAU")]
        cells += [lacking(setting, 10, "FedAU")]
    return {
        "format": 1,
        "name": "table",
        "title": "Fashion-MNIST & 20 clients",
        "scale": "full",
        "reduced": "20,000 of 70,000 images",
        "paper": "table1",
        "settings": [
            {"name": "CN=1", "seeds": [9, 10], "paper": {"dataset": "FMNIST", "CN": 1}},
            {"name": "CN=5", "seeds": [9, 10], "paper": {"dataset": "FMNIST", "CN": 5}},
        ],
        "methods": [
            {"label": "Retraining", "method": "retrain", "paper": "Retraining"},
            {"label": "FedOSD", "method": "fedosd", "paper": "FedOSD"},
            {"label": "FedAU", "method": "fedau", "paper": ""},
        ],
        "cells": cells,
    }


def rows(text: str) -> dict[tuple[str, str], list[str]]:
    """Return the lines of a Markdown table by their first two cells."""
    found: dict[tuple[str, str], list[str]] = {}
    last = ""
    for line in text.splitlines():
        if line.startswith("| "):
            first, second, *rest = (part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1])
            last = first or last
            found.setdefault((last, second), rest)
    return found


def printed(*parts: Any) -> str:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get()


def test_means_over_seeds(results: Any) -> None:
    found = {(row.setting, row.label, row.stage): row for row in tables.aggregate(results)}
    assert list(found)[:6] == [
        ("CN=1", "w0", "initial"),
        ("CN=1", "Retraining", "unlearned"),
        ("CN=1", "FedOSD", "unlearned"),
        ("CN=1", "FedOSD", "recovered"),
        ("CN=1", "FedAU", "unlearned"),
        ("CN=1", "FedAU", "recovered"),
    ]
    assert ("CN=5", "FedAU", "unlearned") not in found
    row = found["CN=5", "FedOSD", "unlearned"]
    assert row.seeds == 2
    assert row.mean == pytest.approx({"asr": 0.03, "r_acc": 0.85, "r_acc_std": 0.1, "forget_acc": 0.5, "distance": 2.0})
    assert row.spread["asr"] == pytest.approx(0.02 / 2**0.5)
    assert row.paper == {"asr": 0.034, "r_acc": 0.861, "r_acc_std": 0.088}
    first = found["CN=1", "w0", "initial"]
    assert (first.seeds, first.mean["asr"], first.paper) == (
        2,
        0.8,
        {"asr": 0.921, "r_acc": 0.831, "r_acc_std": 0.101},
    )
    assert found["CN=1", "FedAU", "unlearned"].spread["asr"] is None  # one seed has no spread


def test_markdown(results: Any) -> None:
    text = tables.markdown(results)
    found = rows(text)
    assert found["w0", "initial"][:2] == ["0.800 / 0.900 (0.100)", "0.921 / 0.831 (0.101)"]
    assert found["FedOSD", "recovered"] == [
        *("0.030 / 0.880 (0.100)", "0.004 / 0.839 (0.099)"),
        *("0.030 / 0.880 (0.100)", "0.044 / 0.857 (0.090)"),
    ]
    assert found["FedAU", "unlearned"] == ["0.500 / 0.850 (0.100)", "–", "not applicable (1)", "–"]
    assert "- (1) FedAU, CN=5, not applicable: needs \\| a \\_history\\_" in text
    assert "- FedAU, CN=1: not applicable at seed 10: needs" in text
    for words in ("Reduced: 20,000 of 70,000", "2 seeds (9, 10)", "FUPareto, arXiv 2602.01852", "spread over seeds"):
        assert words in text
    assert "±0.014 / ±0.000" in text


def test_every_table_says_that_it_is_reduced(results: Any) -> None:
    results |= {"scale": "small", "reduced": "8,000 images"}
    for text in tables.files(results).values():
        assert "SMALL SCALE, reduced: 8,000 images." in text
    results |= {"scale": "full", "reduced": ""}
    assert all("educed" not in text for text in tables.files(results).values())


def test_without_a_trigger_the_forget_accuracy_stands_there(results: Any) -> None:
    for found in results["cells"]:
        for measured in found.get("stages", {}).values():
            measured["asr"] = None
    text = tables.markdown(results)
    assert "CN=1: forget acc. / R-Acc (std)" in text
    assert "Forget accuracy of the forgotten" in text
    assert rows(text)["FedOSD", "unlearned"][0] == "0.500 / 0.850 (0.100)"


def test_without_the_paper_it_has_no_columns(results: Any) -> None:
    results["paper"] = ""
    for setting in results["settings"]:
        setting["paper"] = {}
    text = tables.markdown(results)
    assert "paper" not in text.lower()
    assert len(rows(text)["w0", "initial"]) == 2


def test_an_unfinished_bench(results: Any) -> None:
    results["cells"] = results["cells"][:3]
    text = tables.markdown(results)
    assert rows(text)["FedAU", "unlearned"] == ["–"] * 4
    assert "- FedOSD, CN=1: 1 of 2 seeds so far." in text
    assert "- FedOSD, CN=5: 0 of 2 seeds so far." in text
    results["cells"] = []
    assert rows(tables.markdown(results))["w0", "initial"][0] == "–"
    assert "\\toprule" in tables.latex(results)
    assert tables.terminal(results)


def test_a_result_that_nobody_verified(results: Any) -> None:
    results["cells"][2]["status"] = "unverified"
    assert "FedOSD, CN=1: not verified at seed 9" in tables.markdown(results)


def test_cost(results: Any) -> None:
    text = tables.files(results)["cost.md"]
    found = rows(text)
    assert found["CN=1", "Retraining"] == ["20", "360", "3.0 MB", "4.0 MB", "0 B", "10.0", "1.00"]
    assert found["CN=1", "FedOSD"] == ["20", "360", "3.0 MB", "4.0 MB", "0 B", "2.0", "0.20"]
    assert found["CN=5", "FedAU"] == ["n/a (1)", *"––––––"]
    assert "as measured on this machine" in text
    results["methods"] = results["methods"][1:]
    assert len(rows(tables.files(results)["cost.md"])["CN=1", "FedOSD"]) == 6
    for cell in results["cells"]:
        cell.get("cost", {}).pop("passes", None)  # of an earlier version
    assert rows(tables.files(results)["cost.md"])["CN=1", "FedOSD"] == ["20", "–", "3.0 MB", "4.0 MB", "0 B", "2.0"]


def test_latex(results: Any) -> None:
    text = tables.latex(results)
    assert "\\caption{Fashion-MNIST \\& 20 clients. Reduced" in text
    assert "\\multicolumn{2}{c}{CN=1} & \\multicolumn{2}{c}{CN=5}" in text
    assert "\\cmidrule(lr){3-4} \\cmidrule(lr){5-6}" in text
    assert "FedOSD & unlearned & 0.030 / 0.850 (0.100) & 0.004 / 0.837 (0.103) &" in text
    assert "needs \\textbar{} a \\_history\\_" in text
    assert "$\\pm$0.014" in text
    for line in text.splitlines():
        if line.endswith("\\\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) in (3, 5)
    assert text.count("\\begin{") == text.count("\\end{")


def test_every_character_that_latex_takes_for_its_own_is_escaped() -> None:
    text = to_latex(Sheet("t", [("", r"[50%] a_b#c$d{e}~^\<|>")], 1, [["x&y\nz"]], notes=["±1 × 2"]), "name")
    assert r"{[}50\%{]} a\_b\#c\$d\{e\}\textasciitilde{}\textasciicircum{}\textbackslash{}\textless{}" in text
    assert "x\\&y z \\\\" in text
    assert "$\\pm$1 $\\times$ 2" in text


def test_a_label_cannot_break_a_table() -> None:
    sheet = Sheet("[red]t", [("", "a")], 1, [["[bold]x|y\nz*"]])
    assert "| \\[bold\\]x\\|y z\\* |" in to_markdown(sheet)
    assert "[bold]x|y z*" in printed(to_rich(sheet))


def test_the_terminal_fits_80_columns(results: Any) -> None:
    text = printed(*tables.terminal(results))
    assert "0.030 / 0.850 (0.100)  0.034 / 0.861 (0.088)" in text
    assert "(1) FedAU, CN=5, not applicable: needs | a _history_" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_says_where_there_was_little_to_forget(results: Any) -> None:
    assert not any("hardly knows" in note for note in tables.table(results).notes)
    for c in results["cells"]:
        if c["setting"] == "CN=1" and "stages" in c:
            c["stages"]["initial"]["asr"] = 0.1
    notes = [note for note in tables.table(results).notes if "hardly knows" in note]
    assert [note.partition(":")[0] for note in notes] == ["CN=1"]
    assert "ASR 0.100" in notes[0]
    assert "CN=1: w0 hardly knows" in tables.markdown(results)
    assert not any("hardly knows" in note for note in tables.table(results, "CN=5").notes)
