"""Every link of a Markdown page leads somewhere: to a file, and to a heading where it names one."""

from pathlib import Path

import pytest

from .markdown import ROOT, anchors, links, name_of, pages


def broken(page: Path, root: Path = ROOT) -> list[str]:
    """Return the links of a page that lead nowhere below ``root``."""
    found = []
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(root) or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading\n\n[a](missing.md) [b](#a-heading) [c](#no-heading) [d](https://example.org)\n")
    assert broken(page, tmp_path) == ["missing.md", "#no-heading"]


def test_every_page_is_reached_from_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = [link.partition("#")[0] for link in links(page) if "://" not in link]
        waiting += [(page.parent / target).resolve() for target in targets if target]
    assert [name_of(page) for page in (ROOT / "docs").rglob("*.md") if page not in reached] == []


def test_pages_name_no_place_of_a_machine() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert not any(word in text for word in ("/root/", "/home/", "/work/", "/opt/")), name_of(page)
