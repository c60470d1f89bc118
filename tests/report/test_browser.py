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
from fupareto.report.bench import page as bench

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


# The page of a bench, from a result file of this repository ------------------------------------------------------

RESULTS = Path(__file__).parents[2] / "results"
SORT = """<script>
const table = document.querySelector("table.sortable");
const column = place => [...table.tBodies[0].rows].map(row => row.cells[place].textContent);
const heads = [...table.tHead.rows[0].cells];
const orders = [column(0).join()];
for (let click = 0; click < 3; click++) { heads[2].querySelector("button").click(); orders.push(column(2).join()); }
orders.push(column(0).join(), String(document.querySelectorAll("[aria-sort]").length));
heads[0].querySelector("button").click();
orders.push(column(0).join(), heads[0].getAttribute("aria-sort"));
parent.document.body.setAttribute("data-result", JSON.stringify(orders));
</script>"""


@pytest.fixture(scope="module")
def benched() -> str:
    """A bench with every kind of table and figure: the paper's cells, rounds, attacks and further training."""
    table = json.loads((RESULTS / "table1-fmnist.json").read_text())
    lasting = json.loads((RESULTS / "lasting-digits.json").read_text())
    name, labels = lasting["settings"][0]["name"], [m["label"] for m in lasting["methods"]]
    results = {**table, "settings": [table["settings"][1], lasting["settings"][0]]}
    results["methods"] = table["methods"] + [
        m for m in lasting["methods"] if m["label"] not in ("FedOSD", "FUGAS", "MoDe")
    ]
    results["methods"][-1]["label"] = "W" * 60
    results["cells"] = [c for c in table["cells"] + lasting["cells"] if c["setting"] in ("CN=5", name)]
    results["cells"] = [{**c, "label": "W" * 60 if c["label"] == labels[-1] else c["label"]} for c in results["cells"]]
    rounds = [
        {"round": n, "stage": "unlearned", "asr": 0.9 / n, "r_acc": 0.8, "distance": 0.1 * n} for n in range(1, 30)
    ]
    return bench.render(results, {"CN=5": {m["label"]: [rounds] for m in table["methods"]}})


def test_the_page_of_a_bench_runs_its_own_script_and_no_other(benched: str, tmp_path: Path) -> None:
    dom, log = browse(benched, tmp_path, "--dump-dom")
    assert "CONSOLE" not in log
    assert dom.count("<button") == benched.count('scope="col"') > 50
    evil = benched.replace("</main>", "<script>document.title = 'evil'</script></main>")
    dom, log = browse(evil, tmp_path, "--dump-dom")
    assert "<title>evil" not in dom
    assert "Content Security Policy" in log


def test_the_columns_of_a_bench_can_be_sorted(benched: str, tmp_path: Path) -> None:
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", benched).replace("</body>", f"{SORT}</body>")
    frame = f'<!doctype html><body><iframe srcdoc="{html.escape(page)}"></iframe></body>'
    found = re.search(r'data-result="([^"]*)"', browse(frame, tmp_path, "--dump-dom")[0])
    assert found
    first, up, down, again, names, sorted_heads, by_name, said = json.loads(html.unescape(found[1]))
    values = [float(text.partition("%")[0]) for text in up.split(",")]
    assert values == sorted(values)
    assert [float(text.partition("%")[0]) for text in down.split(",")] == sorted(values, reverse=True)
    assert (names, sorted_heads) == (first, "0")
    assert again != up
    assert said == "ascending"
    assert by_name.startswith("FedAU")


@pytest.mark.parametrize(("width", "dark"), [(DESK, True), (PHONE, False)])
def test_nothing_overlaps_on_the_page_of_a_bench(benched: str, tmp_path: Path, width: int, dark: bool) -> None:
    result = measure(benched, tmp_path, width, *(["--force-dark-mode"] if dark else []))
    assert {key: result[key] for key in ("width", "loaded")} == {"width": 0, "loaded": 0}
    assert result["figures"] == ["convergence-0", "pareto-0", "pareto-1", "lasting-1", "reversion-1"]
    assert result["clashes"] == []


def test_the_page_prints(run: Any, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browse(run[2], tmp_path, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    data = paper.read_bytes()
    assert data.startswith(b"%PDF")
    assert 5 < len(re.findall(rb"/Type /Page\b", data)) < 40
