"""What does the reader open? One HTML document, complete in itself: no script, no request, no other file."""

from collections.abc import Callable
from importlib import resources
from typing import Any

from fupareto.report import comparison, record, sections
from fupareto.report.markup import Safe, join, tag
from fupareto.report.view import Run

# The report of a run, top to bottom. A new part of the report is one more function here.
SECTIONS: tuple[Callable[[Run], Safe | None], ...] = (
    sections.header,
    sections.tiles,
    sections.stages,
    sections.convergence,
    sections.clients,
    record.rounds,
    record.cost,
    record.missing,
    record.provenance,
)
COMPARISON: tuple[Callable[[list[Run]], Safe | None], ...] = (
    comparison.header,
    comparison.from_to,
    comparison.table,
    comparison.curves,
    comparison.verdicts,
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def _document(title: str, *content: object) -> str:
    """A whole page. Its policy forbids the browser to load or run anything, whatever the data say."""
    css = Safe(resources.files("fupareto.report").joinpath("style.css").read_text(encoding="utf-8"))
    head = join(
        Safe('<meta charset="utf-8">'),
        Safe(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Safe('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Safe('<meta name="color-scheme" content="light dark">'),
        Safe('<link rel="icon" href="data:,">'),
        tag("title", title),
        tag("style", css),
    )
    body = tag(
        "main",
        *content,
        tag("footer", "Made by fupareto. This page is complete in itself and opens offline."),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def render(summary: dict[str, Any], rounds: list[dict[str, Any]], config: dict[str, Any]) -> str:
    """The report of one run, from its `summary.json`, `rounds.jsonl` and configuration."""
    run = Run(str(summary.get("name") or "unnamed"), summary, rounds, config)
    return _document(f"{run.name} · unlearning report", *(part(run) for part in SECTIONS))


def render_comparison(runs: list[tuple[str, dict[str, Any], list[dict[str, Any]]]]) -> str:
    """The comparison of runs, each given as its name, summary and rounds."""
    views = [Run(name, summary, rounds) for name, summary, rounds in runs]
    return _document("Comparison of runs", *(part(views) for part in COMPARISON))
