"""Every table of the result pages says what its result file holds: right table, right row, right column."""

import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .expected import COLUMNS, EXPECTED, load, sources
from .markdown import ROOT, Table, name_of, tables

RESULTS = [ROOT / "docs" / "results.md", *sorted((ROOT / "docs" / "results").glob("*.md"))]
ALSO = [ROOT / page for page in ("README.md", "docs/scale.md", "docs/security.md")]  # with a table among others
NUMBER = re.compile(r"(?<![\w.])\.\d{2,3}(?!\d)")  # a fraction, as these pages write it


def wrong(text: str) -> list[str]:
    """Return what is wrong with the tables of a page that are compared with a file."""
    found = []
    for marker, table in tables(text):
        if not marker:
            if any(NUMBER.search(cell) for row in table for cell in row):
                found.append(f"a table with results has no marker: {table[0]}")
        elif marker not in EXPECTED:
            found.append(f"unknown marker {marker}")
        else:
            found += differences(marker, table, EXPECTED[marker]())
    return found


def differences(marker: str, table: Table, expected: Table) -> list[str]:
    if len(table) != len(expected):
        return [f"{marker}: {len(table)} rows on the page, {len(expected)} in the file"]
    return [
        f"{marker}, {expected[0]}: the page says {row}, the file {wanted}"
        for row, wanted in zip(table, expected, strict=True)
        if row != wanted
    ]


@pytest.mark.parametrize("page", [*RESULTS, *ALSO], ids=name_of)
def test_tables_are_those_of_the_files(page: Path) -> None:
    assert wrong(page.read_text()) == []


def test_every_known_table_stands_on_one_page() -> None:
    markers = [marker for page in [*RESULTS, *ALSO] for marker, _ in tables(page.read_text()) if marker]
    assert sorted(markers) == sorted(EXPECTED)


@pytest.mark.parametrize("page", [page for page in RESULTS if page.name != "history.md"], ids=name_of)
def test_a_corrupted_page_fails(page: Path) -> None:
    """Two numbers of one row that change places, or two rows, or two tables, are noticed in every table."""
    text = page.read_text()
    assert wrong(text) == []
    for marker, table in tables(text):
        if not marker:
            continue
        where = text.index(f"<!-- table: {marker} -->")
        end = text.find("\n\n", where)
        lines = text[where : end if end >= 0 else None].splitlines()
        for number, row in enumerate(table[1:], 3):  # after the marker, the header and its rule
            cells = lines[number].split("|")
            for left in range(2, len(cells) - 2):
                if cells[left].strip() == cells[left + 1].strip():
                    continue
                swapped = [*cells[:left], cells[left + 1], cells[left], *cells[left + 2 :]]
                corrupted = [*lines[:number], "|".join(swapped), *lines[number + 1 :]]
                assert wrong(text.replace("\n".join(lines), "\n".join(corrupted))), (marker, row)
        upside_down = [*lines[:3], *reversed(lines[3:])]
        assert wrong(text.replace("\n".join(lines), "\n".join(upside_down))), marker
    names = [marker for marker, _ in tables(text) if marker]
    for one, other in itertools.pairwise(names):
        first, second = f"table: {one} -->", f"table: {other} -->"
        exchanged = text.replace(first, "table: ? -->").replace(second, first).replace("table: ? -->", second)
        assert wrong(exchanged), (one, other)


def test_a_table_without_its_marker_fails() -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    assert wrong(page.replace("<!-- table: overview -->", ""))


def test_the_page_of_the_paper_is_what_its_script_writes(tmp_path: Path) -> None:
    """Where a result file is new: python docs/paper.py. A contradiction has a sentence, a missing column a reason."""
    done = subprocess.run(
        [sys.executable, ROOT / "docs/paper.py", "--out", tmp_path / "paper.md"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "paper.md").read_text()
    assert (ROOT / "docs/results/paper.md").read_text() == written
    for _, table in tables(written):
        for row in table[1:]:
            if row[-1] == "contradicted":
                assert f"- **{row[0]}** contradicts: " in written
    assert "Nothing was tried yet" not in written


def test_the_page_of_the_paper_says_which_seeds_are_not_fresh() -> None:
    """A seed on which something was chosen is named with what it was, by data set; no other seed is."""
    text = (ROOT / "docs/results/paper.md").read_text()
    chosen = tomllib.loads((ROOT / "docs/results/paper.toml").read_text())["chosen"]
    for table, dataset, forget in COLUMNS:
        for name, setting_name in sources(table, dataset, forget):
            [setting] = [s for s in load(name)["settings"] if s["name"] == setting_name]
            about = text.split(f"<!-- table: paper {table} {dataset} CN={forget} {name} -->")[0].rsplit("](../../", 1)[
                1
            ]
            named = dict(re.findall(r"Seed (\d+) is not a fresh test: (.+?\))\.", about))
            assert named == {
                seed: chosen[dataset][seed] for seed in map(str, setting["seeds"]) if seed in chosen[dataset]
            }


def test_the_pictures_are_what_their_script_draws(tmp_path: Path) -> None:
    """Where a result file is new: python docs/lasting.py."""
    done = subprocess.run([sys.executable, ROOT / "docs/lasting.py", "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(drawn) == {"lasting.svg", "reversion.svg"}
    for name, picture in drawn.items():
        assert (ROOT / "docs/images" / name).read_text() == picture, f"{name} is not up to date"


def test_the_history_has_no_numbers_without_a_file() -> None:
    assert NUMBER.findall((ROOT / "docs" / "results" / "history.md").read_text()) == []


def test_every_result_file_is_linked_from_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    for path in (ROOT / "results").glob("*.json"):
        assert f"/results/{path.name})" in pages, path.name


def test_table_1_uses_what_the_grid_chose() -> None:
    """The values marked as chosen are those of the experiment file."""
    listed = tomllib.loads((ROOT / "experiments" / "table1-fmnist.toml").read_text())["methods"]
    options = {method["label"].replace("FUPareto s=3", "FUPareto"): method["options"] for method in listed}
    for stage in ("unlearned", "recovered"):
        chosen = [row for row in EXPECTED[f"tune-fmnist {stage}"]()[1:] if row[-1]]
        assert len(chosen) == 7 - (stage == "recovered")
        for label, values, *_ in chosen:
            for value in values.split():
                option, _, number = value.partition("=")
                assert options[label].get(option, 0.9 if option == "alpha" else None) == float(number), (label, value)
