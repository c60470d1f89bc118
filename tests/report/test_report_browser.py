"""The page in a real browser: what it shows, that it complains of nothing, and that nothing overlaps."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fupareto.report import render, render_comparison

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
const result = {figures: shown.length, clashes, width: document.documentElement.scrollWidth - innerWidth};
document.body.setAttribute("data-result", JSON.stringify(result));
</script>"""


def browse(page: str, folder: Path, width: int) -> tuple[str, str]:
    """The page's DOM and the browser's log."""
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},1200"]
    done = subprocess.run(
        [*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout, done.stderr


def measure(page: str, folder: Path, width: int) -> Any:
    """Figures shown, texts that meet, and how far the page is wider than its window; needs a script of the test's."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</body>", f"{MEASURE}</body>")
    found = re.search(r'data-result="([^"]*)"', browse(page, folder, width)[0])
    assert found
    return json.loads(html.unescape(found[1]))


def test_the_page_shows_its_figures_and_numbers_without_complaint(
    summary: Any, pages: tuple[str, str], tmp_path: Path
) -> None:
    dom, log = browse(pages[0], tmp_path, 1280)
    assert "CONSOLE" not in log
    assert dom.count("<svg ") == 4
    assert dom.count("</svg>") == 4
    for stage, values in summary["stages"].items():
        for key in ("asr", "r_acc", "r_acc_min", "distance"):
            cell = re.search(rf'data-key="stages.{stage}.{key}" data-value="([^"]*)"', dom)
            assert cell
            assert float(cell[1]) == values[key]


@pytest.mark.parametrize("width", [1280, 500])
def test_nothing_overlaps_or_sticks_out(make: Any, rounds: Any, config: Any, tmp_path: Path, width: int) -> None:
    names = ["hospital-north-campus-of-the-city", "<script>alert(1)</script>", "$x^2_", "W" * 60, *"abcdefgh"]
    result = measure(render(make(names, names[:2]), rounds, config), tmp_path, width)
    assert result == {"figures": 2, "clashes": [], "width": 0}


def test_nothing_overlaps_in_a_comparison(summary: Any, rounds: Any, tmp_path: Path) -> None:
    runs = [(name, summary, rounds) for name in ("fupareto", "W" * 60, "<b>bold</b>", "retrain")]
    result = measure(render_comparison(runs), tmp_path, 500)
    assert result == {"figures": 2, "clashes": [], "width": 0}
