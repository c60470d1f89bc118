"""What is shown while a run works: a bar on a terminal, a line now and then elsewhere, nothing when quiet."""

import io
import itertools
import sys
from typing import Any

import pytest

from fupareto import progress

RECORD = {"phase": "improve", "asr": 0.25, "r_acc": 0.5}


class Screen(io.StringIO):
    """What stands for stderr, as a terminal or as a file."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def shown(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool = False, measured: int = 2, last: int = 5
) -> str:
    """Rounds of a run of five, each nine seconds after the one before as far as the clock of the lines is concerned."""
    screen, now = Screen(terminal), itertools.count(0, 9)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    if not terminal:
        monkeypatch.setattr("time.monotonic", lambda: next(now))
    with progress.rounds("training", 5, quiet) as watch:
        for number in range(1, last + 1):
            record: dict[str, Any] = {"round": number, **(RECORD if number == measured else {})}
            if watch is not None:
                watch(record)
    return screen.getvalue()


def test_a_terminal_has_a_bar_that_keeps_what_was_measured_last(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    last = [line for line in text.splitlines() if "training" in line][-1]
    assert "5/5" in last
    assert "ASR 0.250" in last  # of round 2: the later ones were not measured
    assert "R-Acc 0.500" in last


def test_a_file_has_lines_of_measured_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = shown(monkeypatch, terminal=False).splitlines()
    assert line.startswith("training: round 2 of 5, ")
    assert "ASR 0.250" in line


@pytest.mark.parametrize("terminal", [False, True])
def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    assert shown(monkeypatch, terminal, quiet=True) == ""


def test_a_bench_on_a_terminal_shows_its_table_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.bench([("CN=1, seed 0", "FedOSD")], quiet=False) as board:
        assert isinstance(board, progress.TableBoard)
        with board.rounds("training", 5) as watch:
            assert watch is not None
            watch({"round": 3, **RECORD})
    assert "FedOSD" in screen.getvalue()
    erased = "\x1b[2K"
    assert screen.getvalue().rstrip().endswith(erased)


@pytest.mark.parametrize("terminal", [False, True])
def test_rounds_that_were_added_are_among_those_that_are_told(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    """A method may add rounds where they are needed; no bar is then beyond its end."""
    text = shown(monkeypatch, terminal, measured=7, last=7)
    assert ("7/7" if terminal else "round 7 of 7") in text
