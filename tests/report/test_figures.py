"""The figures of a report: what is on them, that they bear odd data, and that they leave as files."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from fupareto.report import figures, figures_of, markup, style, svg, write_figures
from fupareto.report.figures import by_round, clients, cost, membership, plane
from fupareto.report.view import RunView, outcome, positions, series

HOSTILE = ["<script>alert(1)</script>", "$x^2_{$", "W" * 60, "_hidden", "医院"]


def parse(drawing: Any) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{drawing}</div>")


def words_on(figure: Any) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text)}


def test_every_figure_is_an_image_with_a_title_in_two_widths(summary: Any, rounds: Any) -> None:
    drawing = figures.inline("convergence", RunView("demo", summary, rounds))
    root = parse(drawing)
    shown = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {"round", "improve", "expand", "recover", "failed (no step)", "recovery (shaded)"} <= shown
    assert [part.get("class") for part in root] == ["wide", "narrow"]
    for part in root:
        image = part[0]
        assert image.get("role") == "img"
        assert image.get("aria-label") == image[0].text
        assert str(image[0].text).startswith("Round by round: ASR from 82.1% to 2.9%, R-Acc from 91.4% to")
        assert image[0].tag.endswith("title")
        assert image.get("viewBox")
    assert "<?xml" not in str(drawing)
    assert "<style" not in str(drawing)
    assert "var(--retained" in str(drawing)


BARE = RunView("demo", {})
UNMEASURED = RunView("demo", {"stages": {}}, [{}, {}], audit={"membership": {}, "relearning": {}})


def draw(name: str, run: RunView) -> Any:
    if name in figures.OF_A_RUN:
        return figures.OF_A_RUN[name].draw(run, style.WIDE)
    return figures.OF_RUNS[name].draw([run, run], style.WIDE)


@pytest.mark.parametrize("name", [*figures.OF_A_RUN, *figures.OF_RUNS])
def test_without_data_there_is_no_figure(name: str) -> None:
    assert draw(name, BARE) is None


@pytest.mark.parametrize(
    "name",
    [*figures.OF_A_RUN, *figures.OF_RUNS],
)
def test_where_nothing_was_measured_there_is_no_figure(name: str) -> None:
    assert draw(name, UNMEASURED) is None


def test_without_rounds_there_is_nothing_by_round(summary: Any, rounds: Any) -> None:
    drawn, bare = figures_of(summary, rounds), figures_of(summary, [])
    assert set(drawn) - set(bare) == {"convergence", "trajectory", "search"}


def test_forgetting_is_shown_by_accuracy_when_there_is_no_backdoor(summary: Any, rounds: Any) -> None:
    for stage in summary["stages"].values():
        stage["asr"] = None
        for values in stage["clients"].values():
            values["asr"] = None
    for record in rounds:
        record["forget_acc"] = record.pop("asr", None)
    run = RunView("demo", summary, rounds)
    assert (run.marked, run.forgetting) == (False, "forget_acc")
    drawn = figures_of(summary, rounds)
    assert "Forget clients: accuracy" in words_on(drawn["clients"])
    assert "Forget accuracy: right on the forgotten data" in words_on(drawn["convergence"])
    assert drawn["trajectory"].axes[0].get_xlabel().startswith("Forget accuracy")
    assert "not measured" not in words_on(drawn["convergence"])


def test_of_many_clients_those_that_fared_worst_are_drawn(make: Any) -> None:
    names = [f"client {n}" for n in range(200)]
    summary = make(names, names[:3])
    summary["stages"]["recovered"]["clients"]["client 150"]["accuracy"] = 0.1
    rows = clients.client_rows(RunView("demo", summary), "retained")
    assert len(rows) == clients.MOST_BARS
    assert rows[0][0] == "client 150"


def test_a_long_run_has_no_more_marks_than_can_be_told_apart() -> None:
    points = [(n, 0.5) for n in range(3000)]
    assert len(by_round.thin(points)) <= by_round.MOST_MARKS
    assert by_round.thin(points[:50]) == points[:50]
    assert by_round.thin([]) == []


def test_a_trained_model_has_one_bar_per_client(summary: Any) -> None:
    summary["stages"] = {"initial": summary["stages"]["initial"]}
    shown = words_on(clients.clients(RunView("demo", summary | {"final": "initial"}), style.WIDE))
    assert "90.1%" in shown
    assert not any("→" in word for word in shown)


# The plane, the search, the cost ---------------------------------------------------------------------------------


def test_the_trajectory_has_the_measured_rounds(summary: Any, rounds: Any, audit: Any) -> None:
    run = RunView("demo", summary, rounds, audit=audit)
    own = plane.track(run)
    assert len(own.rounds) == 30
    assert own.start == (0.8214, summary["stages"]["initial"]["r_acc"])
    assert own.truth == (0.012, audit["truth"]["retrained"]["r_acc"])
    figure = plane.trajectory(run, style.WIDE)
    assert figure is not None
    assert {"start", "end", "retrained", "improve", "expand", "recover"} <= words_on(figure)
    low, high = figure.axes[0].get_ylim()
    assert 0.8 < low < 0.84
    assert 0.9 < high < 0.95
    assert plane.trajectory(RunView("demo", summary, rounds[:1]), style.WIDE) is None
    assert "retrained" not in words_on(plane.trajectory(RunView("demo", summary, rounds), style.NARROW))


def test_runs_of_unlike_measures_share_no_plane(summary: Any, rounds: Any) -> None:
    other = [{**record, "asr": None, "forget_acc": record.get("asr")} for record in rounds]
    bare = {"stages": {}, "forget": ["3/forget"]}
    assert plane.trajectories([RunView("a", summary, rounds), RunView("b", bare, other)], style.WIDE) is None
    assert plane.trajectories([RunView("a", summary, rounds), RunView("_b", summary, rounds)], style.WIDE) is not None
    assert plane.trajectories([RunView(str(n), summary, rounds) for n in range(7)], style.WIDE) is None


def test_the_search_shows_steps_and_failures(rounds: Any) -> None:
    figure = by_round.search(RunView("demo", {}, rounds), style.WIDE)
    assert figure is not None
    steps, phases = figure.axes
    assert steps.get_yscale() == "log"
    (crosses,) = [line for line in steps.lines if line.get_marker() == "x"]
    failed = [record for record in rounds if record["step"] is None]
    assert np.asarray(crosses.get_xdata()).tolist() == [record["round"] for record in failed]
    assert np.asarray(crosses.get_ydata()).tolist() == [min(record["tried"]) for record in failed]
    assert [label.get_text() for label in phases.get_yticklabels()] == ["improve", "expand", "recover", "failed"]
    bare = [{"round": n, "stage": "unlearned", "phase": "ascent"} for n in (1, 2)]
    assert by_round.search(RunView("demo", {}, bare), style.WIDE) is None
    both = by_round.search(RunView("demo", {}, [*bare, {"round": 3, "phase": "recover", "step": 0.0}]), style.WIDE)
    assert both is not None
    assert len(both.axes) == 1


def test_the_cost_is_compared_where_both_are_known(summary: Any, audit: Any) -> None:
    run = RunView("demo", summary, audit=audit)
    assert [(what, own, other) for what, own, other, _ in cost.compared(run)] == [
        ("rounds", 60, 200),
        ("time", 12.34, 97.3),
        ("traffic", 99_358_023, 331_358_023),
    ]
    audit["truth"]["seconds"] = None
    assert [found[0] for found in cost.compared(run)] == ["rounds", "traffic"]
    assert cost.cost(RunView("demo", summary), style.WIDE) is None


# As files --------------------------------------------------------------------------------------------------------


def test_figures_are_written_for_papers(
    make: Any, rounds: Any, audit_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["trajectory", "clients", "membership"]  # the others take time and are written alike
    monkeypatch.setattr(figures, "OF_A_RUN", {name: figures.OF_A_RUN[name] for name in names})
    summary = make([*HOSTILE, *"abc"], HOSTILE)
    paths = write_figures(tmp_path / "new", summary, rounds[:20], {}, audit_of(summary))
    assert [path.name for path in paths] == [f"{name}.{end}" for name in names for end in ("svg", "png")]
    assert sorted(paths) == sorted((tmp_path / "new").iterdir())
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.width == round(200 * style.WIDE)
                assert image.getpixel((0, 0))[:3] == (255, 255, 255)  # type: ignore[index]
        else:
            root = ElementTree.fromstring(path.read_bytes())
            assert not [element for element in root.iter() if element.tag.endswith("script")]
            assert "var(--" not in path.read_text()
            assert "'DejaVu Sans', sans-serif" in path.read_text()
    assert "&lt;script&gt;" in (tmp_path / "new/clients.svg").read_text()


def test_a_figure_is_the_same_whenever_it_is_made(summary: Any, audit: Any) -> None:
    def files() -> dict[str, bytes]:
        with style.applied():
            figure = membership.membership(RunView("demo", summary, audit=audit), style.WIDE)
            assert figure is not None
            return svg.to_files(figure, "membership")

    assert files() == files()


# What the figures are made of ------------------------------------------------------------------------------------


def test_rounds_stand_at_their_number_or_their_place() -> None:
    assert positions([{"round": 3}, {"round": 5}]) == [3, 5]
    assert positions([{"round": 3}, {"round": 1}]) == [1, 2]
    assert positions([{}, {"round": 1}]) == [1, 2]
    assert series([{"round": 1, "asr": None}, {"round": 2, "asr": 0.5}, {"round": 3}], "asr") == [(2, 0.5)]


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
        (markup.score(0.5), "0.500"),
        (markup.interval("x", {"low": 0.1, "high": None}), None),
        (markup.names(["3"]), "<bdi>3</bdi>"),
        (markup.names(["3", "<7>"]), "<bdi>3</bdi> and <bdi>&lt;7&gt;</bdi>"),
        (markup.names(list("abcd"), limit=2), "<bdi>a</bdi>, <bdi>b</bdi> and 2 more"),
    ],
)
def test_numbers_and_names_read_well(text: str | None, shown: str | None) -> None:
    assert text == shown
