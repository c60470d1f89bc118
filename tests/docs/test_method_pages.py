"""Every method has a page, with the options that it has and their defaults."""

import dataclasses
import pkgutil
import re

import pytest

from fupareto.methods.registry import METHODS, VARIANTS, find
from fupareto.methods.registry import presets as names

from .markdown import ROOT, tables

FOLDER = ROOT / "docs" / "methods"
SECTIONS = ["Rule", "Options", "Cost", "Requests and absences", "How faithful"]


@pytest.mark.parametrize("name", METHODS)
def test_a_page_has_the_options_with_their_defaults(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    method = find(name)
    expected = {f"`{f.name}`": f"`{shown(getattr(method, f.name))}`" for f in dataclasses.fields(method)}
    [options] = [table for _, table in tables(text) if table[0] == ["option", "default", "meaning"]]
    assert {row[0]: row[1] for row in options[1:]} == expected
    assert len(options[1:]) == len(expected)  # no option twice


def shown(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("name", METHODS)
def test_a_page_answers_the_same_questions(name: str) -> None:
    headings = re.findall(r"^## (.+)$", (FOLDER / f"{name}.md").read_text(), re.MULTILINE)
    assert [h for h in headings if h in SECTIONS] == SECTIONS


def test_the_presets_are_those_of_the_code() -> None:
    """The table of differences has the preset's options and both values; the ablations are all listed."""
    text = (FOLDER / "fupareto-presets.md").read_text()
    presets = METHODS["fupareto"].presets
    default = find("fupareto")
    [differences] = [table for _, table in tables(text) if table[0][:2] == ["option", "default"]]
    assert {row[0].strip("`") for row in differences[1:]} == set(presets["paper"])
    for option, ours, literal, _ in differences[1:]:
        name = option.strip("`")
        assert ours.startswith(f"`{shown(getattr(default, name))}`"), name
        assert literal.startswith(f"`{shown(presets['paper'][name])}`"), name
    [ablations] = [table for _, table in tables(text) if table[0][0] == "preset"]
    listed = {row[0].strip("`").partition(":")[2]: row[1] for row in ablations[1:]}
    assert {f"fupareto:{name}" for name in listed} | {"fupareto:guard", "fupareto:paper"} == set(names("fupareto"))
    assert set(presets["guard"]) == {row[0].strip("`") for row in differences[1:6]}  # the page says so
    for preset, words in listed.items():
        if f"fupareto:{preset}" in VARIANTS:
            continue
        [(name, value)] = presets[preset].items() - presets["guard"].items()
        assert words.startswith(f"`{name}={shown(value)}`"), preset


def test_every_function_of_the_listing_exists() -> None:
    """The listing of the algorithm names functions by module; each is there, and every phase is named."""
    text = (FOLDER / "fupareto.md").read_text()
    [listing] = [table for _, table in tables(text) if table[0] == ["line", "what", "function"]]
    assert [row[0] for row in listing[1:]] == [str(n) for n in range(1, len(listing))]
    named = [name for row in listing[1:] for name in re.findall(r"`([^`]+)`", row[2])]
    assert all(re.findall(r"`([^`]+)`", row[2]) for row in listing[1:])
    for name in named:
        package = "fupareto" if name.startswith("pareto.") else "fupareto.methods.fupareto"
        module, _, attribute = name.partition(".")
        assert callable(pkgutil.resolve_name(f"{package}.{module}:{attribute}")), name
    steps = ("_improve", "_expand", "_recover")
    assert {f"method.FUPareto.{step}" for step in steps} <= set(named)


def test_the_index_and_the_site_list_every_method() -> None:
    index, site = (ROOT / "docs" / "methods.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    for name in METHODS:
        assert f"[`{name}`](methods/{name}.md)" in index
        assert f"methods/{name}.md" in site
