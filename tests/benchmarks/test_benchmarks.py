"""Benchmarks run for minutes and seldom; at tiny size they run here, and the page is made of what they wrote."""

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest

import allocation
import fedavg_round
import flower_round
import fupareto_round
import growth
import line_search
import local_step
import memory
import order
import page
import solver
import versions
from common import RESULTS, TimedOut, exponent, isolated, ratios

PARTS = (fedavg_round, versions, order, allocation, local_step, fupareto_round, line_search, growth, memory, solver)
SCRIPTS = {s.__name__: s for s in PARTS}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedavg_round, "PEERS", {})  # processes that take long to start
        for name, script in SCRIPTS.items():
            more = ["--before", "now"] if script is versions else []  # a shallow clone has no earlier version
            script.main(["--tiny", "--out", str(directory / f"{name}.json"), *more])
    return directory


@pytest.mark.deployment
@pytest.mark.parametrize("peer", fedavg_round.PEERS)
def test_peers_that_are_installed_end_with_our_weights(
    peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fedavg_round, "PEERS", {peer: fedavg_round.PEERS[peer]})
    fedavg_round.main(["--tiny", "--out", str(tmp_path / "result.json")])
    (case,) = json.loads((tmp_path / "result.json").read_text())["cases"]
    if case["skipped"]:
        pytest.skip(case["skipped"][peer])
    assert peer in case["times_as_fast_as"]


def test_every_script_but_the_one_over_flower_is_run_by_make_bench() -> None:
    recipe = (RESULTS.parent / "Makefile").read_text()
    assert all(f"benchmarks/{name}.py" in recipe for name in SCRIPTS)


def test_rounds_are_of_the_kinds_that_their_names_say(results: Path) -> None:
    rounds = json.loads((results / "fupareto_round.json").read_text())["rounds"]
    assert rounds["improvement"]["step"] is not None
    assert rounds["improvement, every step refused"]["step"] is None
    assert rounds["expansion"]["phase"] == "expand"
    assert rounds["recovery"]["phase"] == "recover"
    assert rounds["improvement, 3 of 20 clients fail"]["missing"] == 3
    for found in rounds.values():
        assert sum(part["median"] for part in found["share"].values()) == pytest.approx(1.0, abs=0.2)


def test_every_point_of_growth_was_measured(results: Path) -> None:
    axes = json.loads((results / "growth.json").read_text())["axes"]
    assert not [point for axis in axes for point in axis["points"] if "failure" in point]


def test_the_search_is_counted_and_never_asks_more_than_the_exhaustive_one(results: Path) -> None:
    (cell,) = json.loads((results / "line_search.json").read_text())["cells"]
    asked = [
        cell[f"passes{more}"] for more in ("", "_if_everybody_answers_every_tried_step", "_of_the_exhaustive_search")
    ]
    assert 0 < asked[0] <= asked[1] < asked[2]


def test_a_twentieth_of_the_table_has_its_methods_and_rates() -> None:
    bench, short = tomllib.loads(versions.TABLE.read_text()), versions.shortened()
    rounds = ("rounds", "recovery_rounds")
    for whole, part in zip(bench["methods"], short["methods"], strict=True):
        for option, value in whole["options"].items():
            assert part["options"][option] == (value / versions.SHARE if option in rounds else value)
    assert (
        short["experiment"]["train"]["rounds"] * versions.SHARE
        == bench["scales"]["laptop"]["experiment"]["train"]["rounds"]
    )


def test_the_promised_sizes_fit() -> None:
    for case in json.loads((RESULTS / "memory.json").read_text())["cases"]:
        assert case["peak_mib"] <= min(1.1 * case["predicted_mib"], case["promised_mib"]), case


def test_our_solvers_are_exact_on_every_case(results: Path) -> None:
    found = json.loads((results / "solver.json").read_text())
    assert max(row["error"] for row in found["ours"]) < 1e-9


def test_the_page_has_a_section_for_each_and_names_who_is_absent(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "performance.md"
    page.main(["--results", str(results), "--out", str(out)])
    text = out.read_text()
    assert all(f"benchmarks/{name}.json" in text for name in SCRIPTS)
    assert "Not measured" not in text
    skipped = json.loads((results / "solver.json").read_text())["skipped"]
    assert all(name in text for name in skipped)


def test_the_page_says_what_was_not_measured() -> None:
    assert page.page({}).count("Not measured") == len(SCRIPTS)


def test_exponents_and_ratios() -> None:
    assert exponent([1, 10, 100], [3, 300, 30_000]) == pytest.approx(2.0)
    assert ratios([2.0, 6.0], [1.0, 2.0]) == {"median": 2.5, "min": 2.0, "max": 3.0}


def test_a_process_of_its_own_that_hangs_or_crashes_is_reported() -> None:
    with pytest.raises(TimedOut):
        isolated(__import__("time").sleep, 60, limit=0.5)
    with pytest.raises(RuntimeError, match="crashed"):
        isolated(__import__("os")._exit, 3, limit=30)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        isolated(divmod, 1, 0, limit=30)


def test_the_benchmark_over_flower_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[tuple[int, bool]] = []

    def deployed(place: Path, start: Path, clients: tuple[str, ...], warm: bool) -> dict[str, object]:
        measured.append((len(clients), warm))
        if len(measured) == 3:
            raise RuntimeError("stopped")
        rounds = [{"seconds": 9.0}, {"seconds": 1.0 if warm else 4.0}, {"seconds": 2.0 if warm else 8.0}]
        return dict.fromkeys(flower_round.METHODS, flower_round.seconds(rounds))

    monkeypatch.setattr(flower_round, "over_flower", deployed)
    monkeypatch.setattr(flower_round, "imported", lambda what: 1.0)
    monkeypatch.setattr(flower_round, "ours", lambda start: {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["flower_round.py", str(tmp_path / "result.json")])
    with pytest.raises(RuntimeError, match="stopped"):
        flower_round.main()
    assert len(json.loads((tmp_path / "result.json").read_text())["cells"]) == 2
    flower_round.main()
    forth = [(4, False), (4, True), (2, False), (2, True)]
    assert measured == [*forth[:3], *forth[2:], *reversed(forth)]  # the third again, which had failed
    found = json.loads((tmp_path / "result.json").read_text())
    four_times = {"fedavg": 4.0, "fupareto": 4.0}
    assert found["times_as_fast_warm"] == {"deployment": four_times, "deployment of two": four_times}
    assert found["engines"]["deployment"]["fedavg"]["median"] == 6.0


def test_the_page_shows_rounds_over_flower_where_they_were_measured() -> None:
    seconds = {"first": 2.0, "median": 1.25, "all": [2.0, 1.25]}
    engines = {"ours": {"fedavg": seconds, "fupareto": seconds}, "deployment": {"fedavg": seconds, "fupareto": seconds}}
    result = {"versions": {"flwr": "1.41.0"}, "clients": 4, "engines": engines, "import_seconds": {"torch": 1.5}}
    text = page.page({"flower_round": result})
    assert "| deployment | 1.25 | 1.25 |" in text
    assert "flwr 1.41.0" in text
