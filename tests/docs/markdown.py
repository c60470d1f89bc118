"""Reading Markdown pages: their tables, links, anchors and code blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKER = re.compile(r"<!-- table: (.+?) -->")

Table = list[list[str]]


def pages() -> list[Path]:
    """Return every Markdown file that a reader meets: at the top, in docs/ and in the examples."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(found)


def name_of(page: Path) -> str:
    """Return a page's path from the root."""
    return page.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def blocks(page: Path, text: str | None = None) -> Iterator[Block]:
    """Yield the fenced code blocks of a page, in order."""
    lines = (page.read_text(encoding="utf-8") if text is None else text).splitlines()
    opened: int | None = None
    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if opened is None and bare.startswith("```"):
            opened, indent, language = number, len(line) - len(line.lstrip()), bare[3:].split(" ")[0]
        elif opened is not None and bare == "```":
            code = "\n".join(inner[indent:] for inner in lines[opened : number - 1])
            yield Block(page, opened, language, code + "\n")
            opened = None


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def tables(text: str) -> list[tuple[str, Table]]:
    """Return the tables of a page with the marker above each (empty without one); cells without emphasis."""
    found: list[tuple[str, Table]] = []
    marker = ""
    rows: Table | None = None
    for line in [*text.splitlines(), ""]:
        if line.lstrip().startswith("|"):
            if rows is None:
                rows = []
                found.append((marker, rows))
                marker = ""
            if not re.fullmatch(r"\s*\|[\s|:-]+\|\s*", line):
                rows.append(cells(line))
            continue
        rows = None
        if match := MARKER.search(line):
            marker = match.group(1)
        elif line.strip():
            marker = ""
    return found


def cells(line: str) -> list[str]:
    """Return the cells of a table's line, without bold."""
    return [cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|")]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the documentation site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+)$", prose(page), flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page)))
