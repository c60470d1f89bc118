"""Tables as sheets of text cells, for the terminal, as Markdown, or as LaTeX with booktabs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from fupareto.report.markup import clean

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # a line that begins with a bracket would be an option of the line break before it
    "]": "{]}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "…": r"\ldots{}",
    "\u202f": r"\,",
}


@dataclass(frozen=True)
class Sheet:
    """A table of text; a column has a group, empty for none, and a name."""

    title: str
    columns: Sequence[tuple[str, str]]
    left: int  # columns of words; the others hold numbers
    rows: Sequence[Sequence[str]]
    about: Sequence[str] = ()  # sentences of the caption
    notes: Sequence[str] = ()


def to_rich(sheet: Sheet) -> "Table":
    """Return the table for the terminal, without its caption."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_line(sheet.title)), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, (group, name) in enumerate(sheet.columns):
        head = Text("\n".join(filter(None, (_line(group), _line(name)))))
        words = index < sheet.left
        table.add_column(head, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for row in sheet.rows:
        table.add_row(*(Text(_line(cell)) for cell in row))
    return table


def to_text(sentences: Sequence[str], notes: Sequence[str]) -> "Text":
    """Return a caption with a line per note, as they stand under a table in the terminal."""
    from rich.text import Text

    return Text("\n".join(filter(None, [" ".join(map(_line, sentences)), *map(_line, notes)])))


def to_markdown(sheet: Sheet) -> str:
    """Return the table with its title, caption and notes as Markdown."""
    heads = [_markdown(f"{group}: {name}" if group else name) for group, name in sheet.columns]
    rules = [":---" if index < sheet.left else "---:" for index in range(len(heads))]
    rows = [[_markdown(cell) for cell in row] for row in sheet.rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in (heads, rules, *rows))
    parts = [f"**{_markdown(sheet.title)}**", table, " ".join(map(_markdown, sheet.about))]
    parts += ["\n".join(f"- {_markdown(note)}" for note in sheet.notes)]
    return "\n\n".join(filter(None, parts)) + "\n"


def to_latex(sheet: Sheet, label: str) -> str:
    """Return a LaTeX table; the document needs \\usepackage{booktabs}."""
    groups = [(name, len(list(same))) for name, same in groupby(group for group, _ in sheet.columns)]
    kind = "table*" if len(sheet.columns) > 6 else "table"
    caption = " ".join(_latex(text) for text in (f"{sheet.title}.", *sheet.about))
    lines = [f"\\begin{{{kind}}}", "\\centering", f"\\caption{{{caption}}}", f"\\label{{tab:{label}}}"]
    lines += [f"\\begin{{tabular}}{{{'l' * sheet.left}{'r' * (len(sheet.columns) - sheet.left)}}}", "\\toprule"]
    if any(name for name, _ in groups):
        lines += [
            _cells([f"\\multicolumn{{{n}}}{{c}}{{{_latex(name)}}}" if name else " & " * (n - 1) for name, n in groups])
        ]
        lines += [_rules(groups)]
    lines += [_cells([_latex(name) for _, name in sheet.columns]), "\\midrule"]
    lines += [_cells([_latex(cell) for cell in row]) for row in sheet.rows]
    lines += ["\\bottomrule", "\\end{tabular}", *(f"\\par\\smallskip {_latex(note)}" for note in sheet.notes)]
    return "\n".join([*lines, f"\\end{{{kind}}}", ""])


def _cells(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _rules(groups: Sequence[tuple[str, int]]) -> str:
    """Return the short rules under the names of groups."""
    rules, start = [], 1
    for name, count in groups:
        if name:
            rules.append(f"\\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    return " ".join(rules)


def _line(text: str) -> str:
    return re.sub(r"[\n\r\t]+", " ", clean(text))


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", _line(text))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in _line(text))
