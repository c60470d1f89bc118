"""Turn pages written for a repository into a site: README in front, a page for every bench, no links to other files."""

import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fupareto.report.bench.page import render

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the top of the repository, and one for every bench of results/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text, ROOT)))
    for path in sorted((ROOT / "results").glob("*.json")):
        if _bench(path):
            page = render(json.loads(path.read_text(encoding="utf-8")), {})
            files.append(File.generated(config, _page_of(path), content=page))
    return files


def _bench(path: Path) -> bool:
    """Whether a file holds the results of a bench."""
    return path.parent == ROOT / "results" and {"settings", "cells"} <= json.loads(path.read_text()).keys()


def _page_of(path: Path) -> str:
    """The page of a bench on the site."""
    return f"results/bench/{path.stem}.html"


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the results of a bench to its page; show links to other files as plain text."""
    return _moved(markdown, ROOT / "docs" / Path(page.file.src_uri).parent, page.file.src_uri)


def _moved(markdown: str, folder: Path, page: str = "index.md") -> str:
    """Rewrite links that start from ``folder`` so that they start from ``page``."""

    def link(match: re.Match[str]) -> str:
        mark, text, path, anchor = match.groups()
        target = (folder / path).resolve()
        if target.parent == ROOT and target.name in PAGES:
            target = ROOT / "docs" / PAGES[target.name]
        elif target.suffix == ".json" and target.exists() and _bench(target):
            target = ROOT / "docs" / _page_of(target)
        elif not target.exists():  # of a page that is made here, or wrong: the strict build will say so
            return match.group(0)
        elif not target.is_relative_to(ROOT / "docs"):
            return text
        relative = os.path.relpath(target, ROOT / "docs" / Path(page).parent)
        return f"{mark}[{text}]({Path(relative).as_posix()}{anchor or ''})"

    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if k % 2 else LINK.sub(link, part) for k, part in enumerate(parts))
