"""HTML documents of runs and comparisons, complete in themselves: no request, no other file, no foreign script."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from fupareto.report.comparison import sections as comparison
from fupareto.report.markup import Safe, join, tag
from fupareto.report.page import attacks, audit, lasting, record, sections, task
from fupareto.report.view import RunView
from fupareto.tally import words

# A page, top to bottom, after its head: name of the section, its entry in the list of contents, what writes it.
# A new part of the report is one more line here.
Sections = Sequence[tuple[str, str, Callable[[Any], Safe | None]]]
SECTIONS: Sections = (
    ("verdict", "Audit", audit.verdict),
    ("stages", "Models", sections.stages),
    ("task", "Task", task.measures),
    ("trajectory", "Trajectory", sections.trajectory),
    ("convergence", "Convergence", sections.convergence),
    ("clients", "Clients", sections.clients),
    ("membership", "Membership", attacks.membership),
    ("dormancy", "Later", lasting.dormancy),
    ("truth", "Retraining", audit.truth),
    ("way", "Way gone", lasting.way),
    ("relearning", "Relearning", lasting.relearning),
    ("exclusivity", "Others", audit.exclusivity),
    ("rounds", "Rounds", record.rounds),
    ("cost", "Cost", record.cost),
    ("missing", "Missing", record.missing),
    ("provenance", "Provenance", record.provenance),
)
COMPARISON: Sections = (
    ("from-to", "Stages", comparison.from_to),
    ("table", "Numbers", comparison.table),
    ("trajectories", "Trajectories", comparison.trajectories),
    ("curves", "Convergence", comparison.curves),
    ("membership", "Membership", comparison.membership),
    ("verdicts", "Verdicts", comparison.verdicts),
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, *content: object, script: str | None = None) -> str:
    """A whole page. Its policy forbids the browser to load or run anything, whatever the data say.

    `script` is the file of a script of ours; the policy then allows the script with its hash, and no other.
    """
    css, program = Safe(_file("style.css")), _file(script) if script else ""
    allowed = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    policy = _POLICY + (f"; script-src 'sha256-{allowed}'" if script else "")
    head = join(
        Safe('<meta charset="utf-8">'),
        Safe(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
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
    if script:
        body = join(body, tag("script", Safe(program)))
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _file(name: str) -> str:
    return resources.files("fupareto.report").joinpath(name).read_text(encoding="utf-8")


def contents(layout: Sections, subject: Any) -> tuple[Safe, ...]:
    """The sections that have something to say, with a list of them in front."""
    written = [(name, entry, content) for name, entry, write in layout if (content := write(subject)) is not None]
    links = [tag("a", entry, href=f"#{name}") for name, entry, _ in written]
    return (tag("nav", *links, aria_label="On this page"), *(content for _, _, content in written))


def render(
    summary: dict[str, Any],
    rounds: list[dict[str, Any]],
    config: dict[str, Any],
    audit: dict[str, Any] | None = None,
) -> str:
    """The report of one run, from its `summary.json`, `rounds.jsonl`, configuration and, if made, `audit.json`."""
    run = RunView(str(summary.get("name") or "unnamed"), summary, rounds, config, audit or {})
    body = contents(SECTIONS, run)
    checks = f" · {words(run.tally)}" if run.judged and run.tally else ""
    return document(f"{run.name}{checks} · unlearning report", sections.header(run), sections.tiles(run), *body)


def render_comparison(
    runs: list[tuple[str, dict[str, Any], list[dict[str, Any]]]],
    audits: Mapping[str, dict[str, Any] | None] | None = None,
) -> str:
    """The comparison of runs, each given as its name, summary and rounds; `audits` are by name, where there are any."""
    audits = audits or {}
    views = [RunView(name, summary, rounds, audit=audits.get(name) or {}) for name, summary, rounds in runs]
    return document("Comparison of runs", comparison.header(views), *contents(COMPARISON, views))
