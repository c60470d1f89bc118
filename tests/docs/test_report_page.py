"""The pages that explain a report and a run directory name every kind of round that they show."""

from fupareto.report.page.record import PHASES
from fupareto.report.style import MARKERS, OTHER
from fupareto.report.view import FAILED

from .markdown import ROOT


def test_the_page_of_the_report_names_every_mark() -> None:
    page = (ROOT / "docs" / "report.md").read_text()
    for phase, (_, shape, *_) in MARKERS.items():
        assert f"{shape} {phase}" in page
    assert f"{OTHER[1]} a phase of another method" in page


def test_the_page_of_the_run_directory_names_every_phase() -> None:
    [line] = [
        text for text in (ROOT / "docs" / "run-directory.md").read_text().split("\n\n") if text.startswith("A line of")
    ]
    assert all(f"`{phase}`" in line for phase in set(PHASES) - {FAILED})
