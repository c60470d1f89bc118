"""The index of a ledger in a real browser, at the width of a desk and of a phone; names that look like markup."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fupareto.evidence.ledger import Ledger
from fupareto.report.ledger import index

from ..test_browser import CHROMIUM, DESK, PHONE, QUIET, browse, measure

TODAY = datetime.now(UTC).date()
NAMES = ["hospital-north-campus-of-the-city", "<script>alert(1)</script>", "W" * 60, "$x^2_"]
WEIGHTS = 64 * "a"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="NO BROWSER: install chromium to check the page in one")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A ledger of four requests: answered, answered and back, due soon, overdue."""
    place = tmp_path_factory.mktemp("ledger")
    facts: dict[str, Any] = {"federation": {"clients": NAMES, "model": "m", "data": None}, "weights": WEIGHTS}
    made = Ledger.create(place, place / "training", facts)
    for days, client in zip((90, 60, 27, 40), NAMES, strict=True):
        received = TODAY - timedelta(days=days)
        made.add({"clients": [client]}, received, received + timedelta(days=30), reference=f"{client} & Co")
    earlier = {"1": {"result": "back", "text": "It has come back."}}
    for number in (1, 2):
        answer = {"requests": [number], "run": f"runs/{number}", "certificate": WEIGHTS, "weights": WEIGHTS}
        checks = {"shown": 2, "open": 4, "refuted": 1}
        words = {"status": "complete", "verdict": "Forgotten.", "checks": checks, "method": "fupareto:paper"}
        made.answer({**answer, **words, "earlier": earlier if number == 2 else None})
    return made


def test_what_it_says(ledger: Ledger) -> None:
    page = index.render(ledger, TODAY)
    assert "4 requests, 4 clients: 2 open, 2 answered" in page
    assert "10 days overdue" in page
    assert "3 days left" in page
    assert "Request 4: past the deadline." in page
    assert "Request 1: what was forgotten has come back." in page
    assert "<script>" not in page
    assert page.index("4. all data") < page.index("3. all data") < page.index("2. all data")  # the most urgent first


def test_one_is_not_several(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"federation": {"clients": ["a", "b"], "model": "m", "data": None}, "weights": WEIGHTS}
    made = Ledger.create(tmp_path, tmp_path / "training", facts)
    assert "1 entry, 0 of them signed" in index.render(made, TODAY)
    made.add({"clients": ["a"]}, TODAY, TODAY)
    made.answer({**dict.fromkeys(("run", "verdict", "method"), "x"), "requests": [1], "certificate": WEIGHTS,
                 "weights": WEIGHTS, "status": "complete", "checks": None, "earlier": None})  # fmt: skip
    page = index.render(made, TODAY)
    assert "1 request, 2 clients: 0 open, 1 answered" in page
    assert "by 1 model<" in page
    assert "3 entries" in page


@needs_browser
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_nothing_sticks_out(ledger: Ledger, tmp_path: Path, width: int) -> None:
    result = measure(index.render(ledger, TODAY), tmp_path, width)
    assert {key: result[key] for key in QUIET} == QUIET


@needs_browser
def test_it_loads_nothing_and_complains_of_nothing(ledger: Ledger, tmp_path: Path) -> None:
    dom, log = browse(index.render(ledger, TODAY), tmp_path, "--dump-dom")
    assert "CONSOLE" not in log
    assert dom.count("in force") == 1
