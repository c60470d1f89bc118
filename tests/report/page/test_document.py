import copy
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from fupareto.report import render, render_comparison
from fupareto.vocabulary import COST

NASTY = ["<script>alert(1)</script>", "a&b\"'", "$x^2_{$", "医院", "bell\x07", "\ud800", 'id="x" url(#y)']


class Reader(HTMLParser):
    """The page as its reader gets it: numbers by key, text, ids, and every address."""

    VOID = frozenset({"meta", "link"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.numbers: dict[str, list[tuple[str, str]]] = {}
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.open: list[tuple[str, str | None, str, int]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        self.addresses += [str(values[key]) for key in ("href", "src", "xlink:href") if key in values]
        assert not any(name.startswith("on") for name in values)
        if tag not in self.VOID:
            self.open.append((tag, values.get("data-key"), values.get("data-value") or "", len(self.text)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        name, key, value, start = self.open.pop()
        assert name == tag, f"<{name}> closed by </{tag}>"
        if key is not None:
            self.numbers.setdefault(key, []).append((value, self.text[start:]))

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1][0] != "style":
            self.text += data


def look_up(tree: Any, key: str) -> Any:
    """The value at a dotted key; names with dots in them are found too."""
    if key == "":
        return tree
    if isinstance(tree, list):
        tree = {str(place): value for place, value in enumerate(tree)}
    for name in tree:
        if key == name or key.startswith(f"{name}."):
            return look_up(tree[name], key[len(name) + 1 :])
    raise KeyError(key)


def agree(page: Reader, truth: Any) -> None:
    """Every number on the page is the one at its key, and the text says the same."""
    assert not page.open
    for key, cells in page.numbers.items():
        expected = look_up(truth, key)
        for value, text in cells:
            assert (float(value) if value else None) == expected, key
            if text.endswith("%"):
                assert float(text[:-1]) == pytest.approx(100 * expected, abs=0.0501)


def test_the_numbers_on_the_page_are_those_of_the_summary(summary: Any, audit: Any, pages: tuple[str, str]) -> None:
    page = Reader(pages[0])
    agree(page, summary | {"audit": audit})
    assert "<h1>" + summary["verdict"] in pages[0]
    for stage, values in summary["stages"].items():
        for key in ("asr", "asr_max", "r_acc", "r_acc_std", "r_acc_min", "forget_acc", "distance"):
            assert f"stages.{stage}.{key}" in page.numbers
        for name in values["clients"]:
            assert f"stages.{stage}.clients.{name}.accuracy" in page.numbers
    assert {f"cost.{key}" for key in summary["cost"]} <= set(page.numbers)
    assert {f"phases.{key}" for key in summary["phases"]} <= set(page.numbers)
    assert page.numbers["cost.bytes_up"][0][1] == "48.1 MB"
    assert page.numbers["stages.recovered.asr"][0][1] == "2.9%"


def test_the_numbers_of_the_audit_are_all_on_the_page(audit: Any, pages: tuple[str, str]) -> None:
    page = Reader(pages[0])
    ends = ("auc", "low", "high", "balanced_accuracy", "tpr_1", "tpr_01")
    wanted = {"audit.told_apart.auc", "audit.told_apart.with", "audit.exclusivity.lost"}
    wanted |= {f"audit.truth.{key}" for key in (*COST, "retrained.r_acc")}
    for stage, found in audit["membership"].items():
        wanted |= {f"audit.membership.{stage}.mean.confidence.{end}" for end in ends[:3]}
        for name, client in found["clients"].items():
            place = f"audit.membership.{stage}.clients.{name}.attacks"
            wanted |= {f"{place}.{attack}.{end}" for attack in client["attacks"] for end in ends}
    for stage, gaps in audit["truth"]["stages"].items():
        wanted |= {f"audit.truth.stages.{stage}.{key}" for key in gaps if key != "divergence_error"}
    wanted |= {f"audit.relearning.models.{stage}.mean" for stage in audit["relearning"]["models"]}
    for stage in audit["dormancy"]["models"]:
        wanted |= {f"audit.dormancy.models.{stage}.{key}" for key in ("worst", "worst_round", "r_acc")}
    for key in audit["way"]:
        wanted |= {f"audit.way.{key}.spread", f"audit.way.{key}.values.initial.value"}
        wanted |= {f"audit.way.{key}.models.retrained-2.{end}" for end in ("value", "low", "high")}
    wanted |= {f"audit.exclusivity.clients.{name}.change" for name in audit["exclusivity"]["clients"]}
    wanted |= {f"audit.verdict.checks.{place}.value" for place in range(len(audit["verdict"]["checks"]))}
    assert wanted <= set(page.numbers)


def test_the_page_loads_and_runs_nothing(pages: tuple[str, str]) -> None:
    for page in pages:
        reader = Reader(page)
        assert "script" not in reader.tags
        assert "img" not in reader.tags
        assert all(address.startswith("#") or address == "data:," for address in reader.addresses)
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg\")", page)
        assert "@import" not in page
        assert "default-src 'none'" in page


def test_ids_are_unique_and_references_resolve(pages: tuple[str, str]) -> None:
    for page in pages:
        reader = Reader(page)
        assert len(reader.ids) == len(set(reader.ids))
        local = set(re.findall(r"url\(#([^)]+)\)", page)) | {a[1:] for a in reader.addresses if a[0] == "#"}
        assert local
        assert local <= set(reader.ids)


@pytest.mark.usefixtures("one_width")
def test_the_same_run_gives_the_same_page(summary: Any, rounds: Any, config: Any) -> None:
    assert render(summary, rounds[:9], config) == render(summary, rounds[:9], config)


@pytest.mark.usefixtures("one_width")
def test_a_name_is_text_wherever_it_stands(make: Any, rounds: Any, audit_of: Any) -> None:
    summary = make(NASTY, NASTY[:4])
    audit = audit_of(summary)
    for key in ("name", "method", "dataset", "model", "verdict", "status", "created", "part"):
        summary[key] = NASTY[0]
    summary["missing"] = {NASTY[0]: NASTY[0]}
    summary["phases"] = {NASTY[0]: 3}
    summary["versions"] = {NASTY[0]: NASTY[0]}
    rounds[1] |= {"note": NASTY[0], "phase": NASTY[0], "stage": NASTY[0], "missing": {NASTY[0]: NASTY[0]}}
    config = {NASTY[0]: {NASTY[1]: [NASTY[0]]}}
    audit["verdict"]["text"] = audit["created"] = NASTY[0]
    audit["verdict"]["checks"][0] |= dict.fromkeys(("name", "question", "result", "text"), NASTY[0])
    audit["exclusivity"]["worst"]["client"] = NASTY[0]
    for found in audit["membership"].values():
        for client in found["clients"].values():
            client["attacks"][NASTY[0]] = client["attacks"]["loss"]
    report = render(summary, rounds[:6], config, audit)
    for page in (report, render_comparison([(NASTY[0], summary, rounds[:6])], {NASTY[0]: audit})):
        reader = Reader(page)
        assert "script" not in reader.tags
        assert reader.text.count(NASTY[0]) > 5
        assert "\x07" not in page
        page.encode()
    drawings = re.findall(r"<figure id=\"figure-(\w+)\">(.*?)</figure>", report, flags=re.DOTALL)
    naming = {name for name, drawing in drawings if "&lt;scrip" in drawing}
    assert naming == {"clients", "membership", "search", "convergence", "trajectory"}  # by client, or by phase
    assert {"bell\ufffd", "医院", "$x^2_{$", 'id="x" url(#y)'} <= set(re.split(r"\n\s*|\d+\.\d%", Reader(report).text))


@pytest.mark.usefixtures("no_drawing")
def test_what_was_not_measured_is_a_dash_that_says_so(summary: Any, rounds: Any, config: Any, audit: Any) -> None:
    def empty(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: empty(inner) for key, inner in value.items()}
        return None if isinstance(value, float | int) else value

    line = {"round": 1, "stage": "unlearned", "phase": "improve"}
    reader = Reader(render(empty(summary), [line], config, empty(audit)))
    assert reader.numbers["audit.membership.recovered.clients.3.attacks.loss.tpr_01"] == [
        ("", "too few samples to see")
    ]
    assert not re.search(r"\bNone\b|\bnan\b", reader.text)
    page = render(empty(summary), [line], config)
    reader = Reader(page)
    assert reader.numbers["stages.recovered.r_acc"] == [("", "–")] * 2
    assert '<abbr title="not measured">–</abbr>' in page
    assert not re.search(r"\bNone\b|\bnan\b", reader.text)
    summary["stages"]["recovered"]["asr"] = float("nan")
    assert Reader(render(summary, rounds, config)).numbers["stages.recovered.asr"][0] == ("", "–")


@pytest.mark.parametrize("about", [{}, {"stages": {}, "clients": [], "forget": []}])
def test_a_run_that_has_only_begun_has_a_page(about: Any) -> None:
    page = render({"name": "new", **about}, [], {})
    for words in ("No rounds were recorded", "No model has been measured", "No configuration was recorded"):
        assert words in page
    assert "<svg" not in page
    assert "No run has recorded a round" in render_comparison([("new", about, [])])
    assert render_comparison([])


@pytest.mark.usefixtures("no_drawing")
def test_a_training_run_has_only_an_initial_model(summary: Any, config: Any) -> None:
    summary |= {"forget": [], "final": "initial", "stages": {"initial": summary["stages"]["initial"]}, "phases": {}}
    rounds = [
        {"round": n, "stage": "initial", "phase": "train", "step": None, "r_acc": 0.5, "distance": 0.1 * n}
        for n in (1, 2)
    ]
    page = render(summary, rounds, config)
    assert "no unlearned and no recovered model" in page
    assert "nothing has been forgotten yet" in page
    assert "stages.recovered" not in page
    assert "failed" not in Reader(page).text


@pytest.mark.usefixtures("no_drawing")
def test_rounds_are_counted_by_what_they_did(summary: Any, rounds: Any, config: Any) -> None:
    del summary["phases"]
    text = Reader(render(summary, rounds, config)).text
    failed = sum(record["step"] is None for record in rounds)
    assert f"✕failed{failed}no step" in text
    assert "■recover20" in text
    tried = sum(len(record["tried"]) for record in rounds)
    assert f"{tried} steps were tried in 60 rounds" in text


@pytest.mark.usefixtures("no_drawing")
def test_missing_clients_are_named(summary: Any, rounds: Any, config: Any) -> None:
    text = Reader(render(summary, rounds, config)).text
    assert "7forget44–6, 11timed out after 30 s" in text
    assert "never counted as forgotten" in text
    for record in rounds:
        record["missing"] = {}
    assert "Every client answered every question." in render(summary, rounds, config)


@pytest.mark.usefixtures("no_drawing")
def test_an_unfinished_run_says_so(summary: Any, rounds: Any, config: Any) -> None:
    assert "not complete" not in render(summary, rounds, config)
    summary["status"] = "running"
    assert "The run is not complete" in render(summary, rounds, config)
    summary["status"] = "unverified"
    for silent, words in (
        (summary["forget"][0], "did not measure every model, so nothing is claimed"),
        ("some retained client", "some retained client never gave a usable answer"),
    ):
        summary["missing"] = {silent: "timed out"}
        text = render(summary, rounds, config)
        assert words in text
        assert "not complete" not in text


@pytest.mark.usefixtures("no_drawing")
def test_the_configuration_is_on_the_page(summary: Any, rounds: Any, config: Any) -> None:
    text = Reader(render(summary, rounds, config)).text
    assert "data.partition.alpha0.5" in text
    assert "method.steps" + json.dumps([1, 2, 3]) in text


@pytest.mark.usefixtures("no_drawing")
def test_a_run_keeps_the_model_it_names_as_final(summary: Any, rounds: Any, config: Any) -> None:
    summary["final"] = "unlearned"
    page = render(summary, rounds, config)
    assert "solid bars the unlearned one" in page
    assert re.search(r'class="big"[^>]*>3.1%|data-key="stages.unlearned.asr"[^>]*class="big"', page)


@pytest.mark.usefixtures("no_drawing")
def test_a_comparison_has_every_run_and_its_numbers(summary: Any, rounds: Any) -> None:
    other = copy.deepcopy(summary) | {"method": "fedosd", "dataset": "fmnist", "seed": 4}
    other["stages"]["recovered"]["asr"] = 0.1234
    page = render_comparison([("ours", summary, rounds), ("theirs", other, rounds[:9])])
    numbers = Reader(page).numbers
    assert numbers["runs.0.stages.recovered.asr"] == [("0.0291", "2.9%")]
    assert numbers["runs.1.stages.recovered.asr"] == [("0.1234", "12.3%")]
    assert numbers["runs.1.stages.initial.asr"] == [("0.8214", "82.1%")]
    assert "differ in more than their method: data set, seed." in page
    assert "They differ in" not in render_comparison([("a", summary, rounds), ("b", summary, rounds)])
    many = render_comparison([(f"run {n}", summary, rounds) for n in range(45)])
    assert "40 of 45 runs are drawn" in many
    assert "would hide each other" in many
    assert "runs.44.cost.rounds" in Reader(many).numbers
    audited = render_comparison([("ours", summary, rounds)] * 2, {"ours": {"membership": {}, "truth": None}})
    assert Reader(audited).numbers["runs.0.audit.membership.recovered.mean.confidence.auc"] == [("", "–")]
