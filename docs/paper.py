"""Write docs/results/paper.md: every cell of the paper beside ours, with a verdict.

python docs/paper.py [--out docs/results/paper.md]

Numbers are those of results/*.json, the rule is fupareto.report.bench.verdict's; which files count, and what is said of
cells without a run and of contradictions, is in docs/results/paper.toml. Where a file has only some of a column's
methods, a table of the next file that has the column follows.
"""

import argparse
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fupareto import paper
from fupareto.report.bench.aggregate import INITIAL, Row, aggregate
from fupareto.report.bench.verdict import CONTRADICTED, RULE, VERDICTS, model, verdict

ROOT = Path(__file__).parents[1]
NOT_RUN, START = "not run", "where both start"
HEAD = ("method", "stage", "paper", "ours", "ASR, ours − paper", "R-Acc from w0, ours − paper", "verdict")
STAGES = {
    "initial": "initial",
    "unlearn": "unlearned",
    "post": "recovered",
    "unlearn_or_final_unspecified": "unlearned",
}
NAMES = {"table1": "Table I", "ablation": "Ablation"}
DATASETS = {"FMNIST": "Fashion-MNIST"}


@dataclass(frozen=True)
class Column:
    """A data set and number of forget clients of one of the paper's tables, with the file that answers it."""

    table: str
    dataset: str
    forget: int
    source: str = ""
    results: Mapping[str, Any] | None = None

    @property
    def keys(self) -> dict[str, Any]:
        """What entries of paper.toml are compared with."""
        return {"table": self.table, "dataset": self.dataset, "CN": self.forget, "source": self.source}

    @property
    def title(self) -> str:
        """The heading."""
        return f"{NAMES[self.table]}, {DATASETS.get(self.dataset, self.dataset)}, CN = {self.forget}"

    @property
    def marker(self) -> str:
        """The name by which tests find the table."""
        return f"paper {self.table} {self.dataset} CN={self.forget} {self.source or 'not run'}"

    def setting(self) -> Mapping[str, Any]:
        """Return the setting of the results that answers the column."""
        assert self.results is not None
        wanted = {"dataset": self.dataset, "CN": self.forget}
        return next(s for s in self.results["settings"] if s["paper"] == wanted)

    def rows(self) -> dict[tuple[str, str], Row]:
        """Return our rows by the paper's name of the method and our stage."""
        if self.results is None:
            return {}
        names = {INITIAL: INITIAL, **{m["label"]: m["paper"] for m in self.results["methods"]}}
        mine = [row for row in aggregate(self.results) if row.setting == self.setting()["name"]]
        return {(names[row.label], row.stage): row for row in mine if names[row.label]}


@dataclass(frozen=True)
class Line:
    """A row of a table of the page."""

    method: str
    cells: tuple[str, ...]
    verdict: str

    @property
    def key(self) -> tuple[str, str]:
        """Method and stage."""
        return self.method, self.cells[0]

    @property
    def run(self) -> bool:
        """Whether we have the cell."""
        return self.verdict != NOT_RUN


Tab = tuple[Column, list[Line]]  # a table: the rows of a column by one source


def columns(about: Mapping[str, Any], folder: Path) -> Iterator[list[Tab]]:
    """Yield the columns of the paper's tables in its order, each as the tables of the sources that answer it."""
    files = {
        name: json.loads(path.read_text()) for name in about["sources"] if (path := folder / f"{name}.json").exists()
    }
    for table in NAMES:
        for dataset, forget in dict.fromkeys((r["dataset"], r["CN"]) for r in paper.rows(table)):
            wanted = {"dataset": dataset, "CN": forget}
            found = [
                Column(table, dataset, forget, name, results)
                for name, results in files.items()
                if results["paper"] == table and wanted in [s["paper"] for s in results["settings"]]
            ]
            yield _needed([(column, lines(column)) for column in found or [Column(table, dataset, forget)]])


def _needed(tabs: Sequence[Tab]) -> list[Tab]:
    """Return the first table, and as many others as it takes to have every cell; one of several has no empty row."""
    taken: list[Tab] = []
    for column, rows in tabs:
        lacking = {line.key for line in rows} - {line.key for _, some in taken for line in some if line.run}
        if not taken or any(line.key in lacking and line.run for line in rows):
            taken.append((column, rows))
    return [(column, [line for line in rows if line.run]) for column, rows in taken[:-1]] + taken[-1:]


def lines(column: Column) -> list[Line]:
    """Return the rows of a column's table, in the paper's order."""
    ours, found = column.rows(), []
    printed = [r for r in paper.rows(column.table) if (r["dataset"], r["CN"]) == (column.dataset, column.forget)]
    first = next(r for r in printed if r["method"] == INITIAL)
    start = ours.get((INITIAL, "initial"))
    for row in printed:
        stage = STAGES[row["stage"]]
        own = ours.get((_name(row["method"], ours), stage))
        theirs = model(
            {"asr": row["ASR"], "r_acc": row["R_Acc_mean"]}, {"asr": first["ASR"], "r_acc": first["R_Acc_mean"]}
        )
        mine = model(own.mean, start.mean) if own and start else None
        assert theirs is not None
        shown = f"{_short(theirs.asr)} / {_short(theirs.r_acc)}"
        if mine is None:
            found.append(Line(row["method"], (stage, shown, "", "", ""), NOT_RUN))
            continue
        judged = START if stage == "initial" else verdict(mine, theirs)
        differences = (
            _signed(mine.asr - theirs.asr),
            _signed(mine.change - theirs.change) if stage != "initial" else "",
        )
        found.append(
            Line(row["method"], (stage, shown, f"{_short(mine.asr)} / {_short(mine.r_acc)}", *differences), judged)
        )
    return found


def _name(method: str, ours: Mapping[tuple[str, str], Row]) -> str:
    """Return our spelling of a method of the paper."""
    plain = {"".join(c for c in name.lower() if c.isalnum()): name for name, _ in ours}
    return plain.get("".join(c for c in method.lower() if c.isalnum()), method)


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _signed(value: float) -> str:
    rounded = round(value, 3) + 0.0
    return f"{'−' if rounded < 0 else '+'}{_short(abs(rounded))}"


# The page ----------------------------------------------------------------------------------------------------------


def page(about: Mapping[str, Any], folder: Path) -> str:
    """Return the page; raise ValueError for a column without a run and a reason, or an unexplained contradiction."""
    found = list(columns(about, folder))
    parts = [INTRODUCTION, "## The rule", RULE, "## In short", *_counts(found), "## Figures and other claims"]
    parts.append(_figures(about, folder))
    for tabs in found:
        parts.append(f"## {tabs[0][0].title}")
        for number, (column, rows) in enumerate(tabs):
            body = [[line.method, *line.cells, line.verdict] for line in rows]
            parts += [OTHERS] * bool(number) + [_about(about, column), _table(HEAD, body, column.marker)]
            parts += _explained(about, column, rows)
    return "\n\n".join(parts) + "\n"


OTHERS = "All methods, at a smaller scale:"


INTRODUCTION = """\
# The paper, cell by cell

Every cell of the paper's tables beside our counterpart, with a verdict. Cells are ASR / R-Acc; the paper's numbers are
those of [arXiv 2602.01852](https://arxiv.org/abs/2602.01852). `python docs/paper.py` writes this page from the result
files. FUPareto is the algorithm without renewal (`fupareto:guard`). The paper does not say after which stage its
ablation was measured; it is compared with our unlearned models."""


def _counts(found: Sequence[Sequence[Tab]]) -> list[str]:
    words = (*VERDICTS, NOT_RUN)
    body, total = [], Counter[str]()
    for tabs in found:
        first = {line.key: line for _, rows in reversed(tabs) for line in rows}
        count = Counter(line.verdict for (_, stage), line in first.items() if stage != "initial")
        total += count
        body.append([tabs[0][0].title, *(str(count[word]) for word in words)])
    body.append(["all", *(str(total[word]) for word in words)])
    several = any(len(tabs) > 1 for tabs in found)
    return [_table(("column", *words), body, "paper counts"), NOT_JUDGED + SEVERAL * several]


NOT_JUDGED = "Rows of w0 are not judged: they are where both start."
SEVERAL = " Where a column has two tables, a cell counts by the first that has it."


def _about(about: Mapping[str, Any], column: Column) -> str:
    if column.results is None:
        reason = next((m["reason"] for m in about["missing"] if _matches(m, column.keys)), None)
        if reason is None:
            raise ValueError(f"{column.title} has neither a result file nor a reason in docs/results/paper.toml")
        return f"Not run: {reason}."
    cells = column.results["cells"]
    seeds = sorted({c["seed"] for c in cells if c["setting"] == column.setting()["name"] and c.get("stages")})
    chosen = about["chosen"].get(column.dataset)
    if chosen is None:
        raise ValueError(f"docs/results/paper.toml does not say what was chosen on {column.dataset}: add [chosen.…]")
    told = "".join(f" Seed {s} is not a fresh test: {chosen[str(s)]}." for s in seeds if str(s) in chosen)
    reduced = f" Reduced: {column.results['reduced']}." if column.results["reduced"] else " At the paper's scale."
    link = f"[`{column.source}`](../../results/{column.source}.json)"
    return f"{link}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}.{reduced}{told}"


def _explained(about: Mapping[str, Any], column: Column, rows: Sequence[Line]) -> list[str]:
    """Return a sentence for every method that contradicts the paper."""
    names = dict.fromkeys(line.method for line in rows if line.verdict == CONTRADICTED)
    texts = {}
    for name in names:
        entry = next((e for e in about["explained"] if _matches(e, {**column.keys, "method": name})), None)
        if entry is None:
            raise ValueError(f"{name} contradicts {column.title}, and docs/results/paper.toml says nothing of it")
        texts[name] = entry["text"]
    return ["\n".join(f"- **{name}** contradicts: {text}" for name, text in texts.items())] if texts else []


def _matches(entry: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    return all(entry[key] == keys.get(key) for key in entry if key not in ("text", "reason"))


def _figures(about: Mapping[str, Any], folder: Path) -> str:
    body = []
    for figure in about["figures"]:
        there = (folder / f"{figure['file']}.json").exists()
        body.append([figure["what"], "run" if there else NOT_RUN, figure["where"], figure["differs"]])
    return _table(("what", "ours", "where", "what differs"), body)


def _table(head: Sequence[str], body: Sequence[Sequence[str]], marker: str = "") -> str:
    rows = [f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") for cells in (head, *body)]
    rows.insert(1, "|" + "---|" * len(head))
    return "\n".join([*([f"<!-- table: {marker} -->"] if marker else []), *rows])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "paper.md")
    chosen = parser.parse_args(arguments)
    about = tomllib.loads((ROOT / "docs" / "results" / "paper.toml").read_text(encoding="utf-8"))
    chosen.out.write_text(page(about, ROOT / "results"), encoding="utf-8")
    print(chosen.out)


if __name__ == "__main__":
    main()
