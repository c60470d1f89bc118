"""Write the marked tables of the pages that differ from the result files: python -m tests.docs.fill"""

from .expected import EXPECTED
from .markdown import MARKER, Table, tables
from .test_results import ALSO, RESULTS


def filled(text: str) -> str:
    """Return a page in which the rows under every marker are those that its result file says."""
    stands = dict(tables(text))
    lines, written = text.splitlines(keepends=True), []
    while lines:
        line = lines.pop(0)
        written.append(line)
        found = MARKER.search(line)
        if found and stands.get(found[1]) != (wanted := EXPECTED[found[1]]()):
            while lines and lines[0].startswith("|"):
                lines.pop(0)
            written += rows(wanted)
    return "".join(written)


def rows(table: Table) -> list[str]:
    """Return a table as Markdown, a line per row."""
    header, *body = (f"| {' | '.join(row)} |\n" for row in table)
    return [header, f"|{'---|' * len(table[0])}\n", *body]


if __name__ == "__main__":
    for page in (*RESULTS, *ALSO):
        page.write_text(filled(page.read_text()))
