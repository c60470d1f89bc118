"""The page of a bench: its numbers are those of the results, and it loads and runs nothing of the data's."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fupareto.report.bench import page, tables

from ..page.test_document import NASTY, Reader

RESULTS = Path(__file__).parents[3] / "results"


def load(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def table1() -> tuple[Any, Reader, str]:
    results = load("table1-fmnist")
    text = page.render(results, {})
    return results, Reader(text.partition("<script>")[0] + "</body></html>"), text


def test_numbers_are_means_over_seeds_and_the_papers(table1: Any) -> None:
    results, reader, _ = table1
    first = {row.setting: row for row in tables.aggregate(results) if row.stage == "initial"}
    for row in tables.aggregate(results):
        place = f"{row.setting}.{row.label}.{row.stage}"
        for key in ("asr", "r_acc", "distance"):
            [(value, shown)] = reader.numbers[f"{place}.{key}"]
            assert float(value) == row.mean[key]
            assert key == "distance" or float(shown.rstrip("%")) == pytest.approx(
                100 * (row.mean[key] or 0), abs=0.0501
            )
        [(value, _)] = reader.numbers[f"{place}.change"]
        assert float(value) == pytest.approx((row.mean["r_acc"] or 0) - (first[row.setting].mean["r_acc"] or 0))
        for key in ("asr", "r_acc"):
            [(value, _)] = reader.numbers[f"paper.{place}.{key}"]
            assert value == ("" if row.paper is None else repr(row.paper[key]))  # type: ignore[literal-required]


def test_cost_membership_and_provenance(table1: Any) -> None:
    results, reader, _ = table1
    seconds = [c["cost"]["seconds"] for c in results["cells"] if (c["setting"], c["label"]) == ("CN=5", "FedOSD")]
    assert float(reader.numbers["CN=5.FedOSD.cost.seconds"][0][0]) == pytest.approx(sum(seconds) / len(seconds))
    for text in (
        results["created"],
        *map(str, results["versions"].values()),
        "LAPTOP SCALE, reduced",
        "expansion_harm",
    ):
        assert text in reader.text
    assert {"cost", "membership", "provenance", "setting-0", "setting-1"} <= set(reader.ids)


def test_verdicts_stand_beside_the_papers_cells(table1: Any) -> None:
    _, _, text = table1
    rows = re.findall(r"<tr><th scope=\"row\"><bdi>([^<]*)</bdi></th><td>(\w+)</td>(.*?)</tr>", text)
    judged: dict[tuple[str, str], list[str]] = {}
    for label, stage, cells in rows:  # those of the first setting; other tables have rows with the same names
        judged.setdefault((label, stage), re.findall(r'class="result [^"]*">([^<]*)<', cells))
    assert judged["FUPareto s=3", "recovered"] == ["reproduced"]
    assert judged["FUPareto s=3, anchor", "recovered"] == []  # the paper has no such row
    assert judged["w0", "initial"] == []


def test_the_only_script_is_ours_and_its_hash_is_in_the_policy(table1: Any) -> None:
    *_, text = table1
    [script] = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy == [f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"]


def test_names_are_escaped() -> None:
    results = load("requests-digits")
    for method, name in zip(results["methods"], NASTY, strict=False):
        for cell in results["cells"]:
            if cell["label"] == method["label"]:
                cell |= {"label": name, "options": {name: name}}
        method["label"] = name
    results["title"] = results["settings"][0]["name"] = NASTY[0]
    for cell in results["cells"]:
        cell["setting"] = NASTY[0] if cell["setting"] == "class 4" else cell["setting"]
    text = page.render(results, {})
    reader = Reader(text.rpartition("<script>")[0] + "</body></html>")
    assert reader.text.count(NASTY[0]) > 3
    assert len(re.findall("<script", text)) == 1
    assert len(reader.ids) == len(set(reader.ids))
    assert all(address.startswith(("#", "data:")) for address in reader.addresses)


def test_a_bench_without_results_says_so() -> None:
    results = {**load("requests-digits"), "cells": []}
    text = page.render(results, {})
    assert "No run is finished yet." in text
    assert text.count("No run of this setting is finished yet.") == 2
