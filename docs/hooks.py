"""Turn pages written for a repository into a site: README in front, no links to files that the site does not have."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the top of the repository."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text, ROOT)))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Show links to other files of the repository (results, examples) as plain text."""
    return _moved(markdown, ROOT / "docs" / Path(page.file.src_uri).parent, page.file.src_uri)


def _moved(markdown: str, folder: Path, page: str = "index.md") -> str:
    """Rewrite links that start from ``folder`` so that they start from ``page``."""

    def link(match: re.Match[str]) -> str:
        mark, text, path, anchor = match.groups()
        target = (folder / path).resolve()
        if target.parent == ROOT and target.name in PAGES:
            target = ROOT / "docs" / PAGES[target.name]
        elif not target.exists():  # of a page that is made here, or wrong: the strict build will say so
            return match.group(0)
        elif not target.is_relative_to(ROOT / "docs"):
            return text
        relative = os.path.relpath(target, ROOT / "docs" / Path(page).parent)
        return f"{mark}[{text}]({Path(relative).as_posix()}{anchor or ''})"

    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if k % 2 else LINK.sub(link, part) for k, part in enumerate(parts))
