from typing import Any
from xml.etree import ElementTree

import pytest

from fupareto.report import figures, markup
from fupareto.report.view import Run, outcome


def parse(drawing: Any) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{drawing}</div>")


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def test_every_figure_is_an_image_with_a_title_in_two_widths(summary: Any, rounds: Any) -> None:
    run = Run("demo", summary, rounds)
    labels = {"round", "improve", "expand", "recover", "failed (no step)", "recovery (shaded)"}
    for drawing, words in ((figures.convergence(run), labels), (figures.clients(run), {"3", "78.4% → 0.0%"})):
        root = parse(drawing)
        assert words <= set(texts(root))
        assert [part.get("class") for part in root] == ["wide", "narrow"]
        for part in root:
            svg = part[0]
            assert svg.get("role") == "img"
            assert svg.get("aria-label") == svg[0].text
            assert svg[0].tag.endswith("title")
            assert svg.get("viewBox")
        assert "<?xml" not in str(drawing)
        assert "<style" not in str(drawing)
        assert "var(--retained" in str(drawing)


def test_without_data_there_is_no_figure(summary: Any) -> None:
    assert figures.convergence(Run("demo", summary)) is None
    assert figures.clients(Run("demo", {})) is None


def test_forgetting_is_shown_by_accuracy_when_there_is_no_backdoor(summary: Any) -> None:
    for stage in summary["stages"].values():
        stage["asr"] = None
        for values in stage["clients"].values():
            values["asr"] = None
    run = Run("demo", summary)
    assert run.forgetting_measure == "accuracy"
    assert "Clients to be forgotten: accuracy" in texts(parse(figures.clients(run)))


def test_of_many_clients_those_that_fared_worst_are_drawn(make: Any) -> None:
    names = [f"client {n}" for n in range(200)]
    summary = make(names, names[:3])
    summary["stages"]["recovered"]["clients"]["client 150"]["accuracy"] = 0.1
    rows = figures.client_rows(Run("demo", summary), "retained")
    assert len(rows) == figures.MOST_BARS
    assert rows[0][0] == "client 150"


def test_a_long_run_has_no_more_marks_than_can_be_told_apart() -> None:
    points = [(n, 0.5) for n in range(3000)]
    assert len(figures.thin(points)) <= figures.MOST_MARKS
    assert figures.thin(points[:50]) == points[:50]
    assert figures.thin([]) == []


def test_a_trained_model_has_one_bar_per_client(summary: Any) -> None:
    summary["stages"] = {"initial": summary["stages"]["initial"]}
    words = texts(parse(figures.clients(Run("demo", summary | {"final": "initial"}))))
    assert "90.1%" in words
    assert not any("→" in word for word in words)


def test_rounds_stand_at_their_number_or_their_place() -> None:
    assert figures.positions([{"round": 3}, {"round": 5}]) == [3, 5]
    assert figures.positions([{"round": 3}, {"round": 1}]) == [1, 2]
    assert figures.positions([{}, {"round": 1}]) == [1, 2]
    assert figures.series([{"round": 1, "asr": None}, {"round": 2, "asr": 0.5}, {"round": 3}], "asr") == [(2, 0.5)]


def test_a_round_without_a_step_failed_unless_it_trained() -> None:
    assert outcome({"phase": "improve", "step": None}) == "failed"
    assert outcome({"phase": "improve", "step": 0.1}) == "improve"
    assert outcome({"phase": "recover"}) == "recover"
    assert outcome({"phase": "train", "step": None}) == "train"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (markup.duration(12.34), "12.3 s"),
        (markup.duration(59.97), "1 min 0 s"),
        (markup.duration(3725), "1 h 2 min"),
        (markup.size(999), "999 B"),
        (markup.size(12_345), "12.3 kB"),
        (markup.size(48_123_456), "48.1 MB"),
        (markup.size(2.5e10), "25.0 GB"),
        (markup.points(-0.0123), "−1.2"),
        (markup.points(0.0001), "±0.0"),
        (markup.names(["3"]), "<bdi>3</bdi>"),
        (markup.names(["3", "<7>"]), "<bdi>3</bdi> and <bdi>&lt;7&gt;</bdi>"),
        (markup.names(list("abcd"), limit=2), "<bdi>a</bdi>, <bdi>b</bdi> and 2 more"),
    ],
)
def test_numbers_and_names_read_well(text: str, shown: str) -> None:
    assert text == shown
