"""The documentation site builds, strictly, and fetches nothing from elsewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .markdown import ROOT

MISSING = [name for name in ("mkdocs", "material", "mkdocstrings") if importlib.util.find_spec(name) is None]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if MISSING:
        pytest.skip(f"THE SITE IS NOT TESTED: {', '.join(MISSING)} not installed; pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    assert "measures how well" in (site / "index.html").read_text()


def test_the_reference_has_the_public_api(site: Path) -> None:
    page = (site / "reference.html").read_text()
    for name in ("simulate", "train", "unlearn", "Result", "FUPareto", "FedAvg", "Request", "Loss", "client_app"):
        assert re.search(rf'id="fupareto\.[\w.]*\b{name}"', page), name


def test_links_to_the_results_of_a_bench_lead_to_its_page(site: Path) -> None:
    assert 'href="bench/table1-fmnist.html"' in (site / "results" / "table1.html").read_text()
    page = (site / "results" / "bench" / "table1-fmnist.html").read_text()
    assert "script-src 'sha256-" in page
    assert "FUPareto s=3, anchor" in page
    assert not (site / "results" / "bench" / "demo-digits.html").exists()  # not of a bench


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(
        r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+rel="stylesheet"[^>]+href="(?:https?:)?//'
    )
    for page in site.rglob("*.html"):
        assert not fetched.search(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?https?://", sheet.read_text()), sheet
