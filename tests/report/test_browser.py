"""The page in a real browser: what it shows, that it complains of nothing, and that nothing overlaps."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fupareto.report import figures, render, render_comparison

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NO BROWSER: install chromium to check the report in one")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
]
ITS_OWN = re.compile(r"(^|\.)(google|googleapis|gvt1)\.com$")  # hosts that the browser itself asks for
DESK, PHONE = 1280, 390
MEASURE = """<script>
const shown = [...document.querySelectorAll("svg")].filter(svg => svg.getClientRects().length);
const clashes = [];
for (const svg of shown) {
  const boxes = [...svg.querySelectorAll("text")].map(text => [text.textContent.trim(), text.getBoundingClientRect()]);
  const frame = svg.closest("section").getBoundingClientRect();
  boxes.forEach(([name, box], i) => {
    if (box.left < frame.left || box.right > frame.right) clashes.push([name, "leaves its section"]);
    for (const [other, far] of boxes.slice(i + 1))
      if (box.left < far.right - 1 && far.left < box.right - 1 && box.top < far.bottom - 3 && far.top < box.bottom - 3)
        clashes.push([name, other]);
  });
}
const result = {
  figures: shown.map(svg => svg.closest("figure").id.slice(7)),
  clashes,
  width: document.documentElement.scrollWidth - innerWidth,
  loaded: performance.getEntriesByType("resource").length,
  paper: getComputedStyle(document.querySelector("section")).backgroundColor,
  ink: getComputedStyle(document.body).color,
};
parent.document.body.setAttribute("data-result", JSON.stringify(result));
</script>"""
RUN = list(figures.OF_A_RUN)
ORDER = ["trajectory", "convergence", "clients", "membership", "dormancy", "relearning", "conflicts", "search", "cost"]
QUIET = {"clashes": [], "width": 0, "loaded": 0}


def browse(page: str, folder: Path, *flags: str) -> tuple[str, str]:
    """The page's DOM and the browser's log."""
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={DESK},1200", *flags]
    done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def measure(page: str, folder: Path, width: int, *flags: str) -> Any:
    """What is shown at a width, in a frame, since no window is as narrow as a phone; needs a script of the test's."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</body>", f"{MEASURE}</body>")
    frame = f'<!doctype html><body><iframe width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe></body>'
    found = re.search(r'data-result="([^"]*)"', browse(frame, folder, "--dump-dom", *flags)[0])
    assert found
    return json.loads(html.unescape(found[1]))


@pytest.fixture(scope="module")
def run(make: Any, audit_of: Any, lines: Any, config: Any) -> Any:
    """A run whose clients have names that are long or look like markup: its summary, its audit and its page."""
    names = ["hospital-north-campus-of-the-city", "<script>alert(1)</script>", "$x^2_", "W" * 60, *"abcdefgh"]
    summary = make(names, names[:5])
    audit = audit_of(summary)
    return summary, audit, render(summary, lines, config, audit)


def test_the_page_shows_its_figures_and_numbers_without_complaint(run: Any, tmp_path: Path) -> None:
    summary, audit, page = run
    traffic = tmp_path / "net.json"
    dom, log = browse(page, tmp_path, "--dump-dom", f"--log-net-log={traffic}")
    assert "CONSOLE" not in log
    hosts = re.findall(r'"url":"\w+://([^/":]+)', traffic.read_text())
    assert not [host for host in hosts if not ITS_OWN.search(host)]
    assert re.findall(r'<figure id="figure-([^"]*)"', dom) == ORDER
    assert sorted(ORDER) == sorted(RUN)
    assert dom.count("<svg ") == dom.count("</svg>") == 2 * len(ORDER)
    numbers = dict(re.findall(r'data-key="([^"]*)" data-value="([^"]*)"', dom))
    for stage, values in summary["stages"].items():
        for key in ("asr", "r_acc", "r_acc_min", "distance"):
            assert float(numbers[f"stages.{stage}.{key}"]) == values[key]
    for stage, found in audit["membership"].items():
        assert float(numbers[f"audit.membership.{stage}.mean.confidence.auc"]) == found["mean"]["confidence"]["auc"]
    assert float(numbers["audit.truth.seconds"]) == audit["truth"]["seconds"]


@pytest.mark.parametrize(("width", "dark"), [(DESK, False), (PHONE, True)])
def test_nothing_overlaps_or_sticks_out(run: Any, tmp_path: Path, width: int, dark: bool) -> None:
    result = measure(run[2], tmp_path, width, *(["--force-dark-mode"] if dark else []))
    assert {key: result[key] for key in QUIET} == QUIET
    assert result["figures"] == ORDER
    colours = ("rgb(27, 33, 42)", "rgb(231, 234, 239)") if dark else ("rgb(255, 255, 254)", "rgb(28, 36, 49)")
    assert (result["paper"], result["ink"]) == colours


@pytest.mark.usefixtures("one_width")
@pytest.mark.parametrize("one_width", ["narrow"], indirect=True)
def test_fifty_clients_and_a_single_one_to_forget(
    make: Any, rounds: Any, config: Any, audit_of: Any, tmp_path: Path
) -> None:
    names = [f"hospital {n}" for n in range(50)]
    summary = make(names, names[:1])
    audit = audit_of(summary)
    few = {key: audit[key] for key in ("membership", "exclusivity", "verdict")}
    result = measure(render(summary, rounds[:12], config, few), tmp_path, PHONE)
    assert {key: result[key] for key in QUIET} == QUIET


@pytest.mark.usefixtures("one_width")
@pytest.mark.parametrize("one_width", ["narrow"], indirect=True)
def test_nothing_overlaps_in_a_comparison(make: Any, rounds: Any, audit_of: Any, tmp_path: Path) -> None:
    summary = make(None, list("3456"))
    audit = audit_of(summary)
    runs = [(name, summary, rounds) for name in ("fupareto", "W" * 60, "<b>bold</b>", "_retrain")]
    result = measure(render_comparison(runs, {name: audit for name, _, _ in runs}), tmp_path, PHONE)
    assert {key: result[key] for key in QUIET} == QUIET
    assert result["figures"] == ["from-to", "trajectories", "curves", "membership-runs"]


def test_the_page_prints(run: Any, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browse(run[2], tmp_path, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    data = paper.read_bytes()
    assert data.startswith(b"%PDF")
    assert 5 < len(re.findall(rb"/Type /Page\b", data)) < 40
