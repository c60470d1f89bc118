"""Progress displays on stderr: a bar or a table on a terminal, a line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

Watch = Callable[[dict[str, Any]], None]


@contextmanager
def rounds(title: str, total: int, quiet: bool) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Yield a function that shows the record of a round, or None when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        yield from _bar(title, total)
    else:
        yield _lines(title, total)


def _bar(title: str, total: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that shows records in a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, said="")
        said = ""

        def show(record: dict[str, Any]) -> None:
            nonlocal said
            said = in_words(record) or said
            bar.update(task, completed=record["round"], total=max(total, record["round"]), said=said)

        yield show


def _lines(title: str, total: int) -> Callable[[dict[str, Any]], None]:
    """Return a function that prints a record as a line, at most every five seconds."""
    last = time.monotonic()

    def show(record: dict[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last > 5 and in_words(record):
            last = time.monotonic()
            unit, number = record.get("unit", "round"), record["round"]
            text = f"{title}: {unit} {number} of {max(total, number)}, {in_words(record)}"
            print(text, file=sys.stderr, flush=True)

    return show


def in_words(record: dict[str, Any]) -> str:
    """Return the phase and the main measurements of a round as text; empty for a round that was not measured."""
    if "said" in record:
        return str(record["said"])
    if record.get("r_acc") is None:
        return ""
    known = "ASR" if record.get("asr") is not None else "forget accuracy"
    value = record.get("asr") if record.get("asr") is not None else record.get("forget_acc")
    text = "" if record["phase"] == "train" else f"{record['phase']}, "
    return text + (f"{known} {value:.3f}, " if value is not None else "") + f"R-Acc {record['r_acc']:.3f}"


@contextmanager
def download(quiet: bool) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Yield a function of (file, bytes so far, total bytes) that shows a download, or None when quiet."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def show(file: str, so_far: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=so_far, total=total)

        yield show


class Board:
    """Progress of a bench, without a display; the base of boards that have one.

    Args:
        cells: Column and method of every cell, in the order in which they are run.
    """

    def __init__(self, cells: Sequence[tuple[str, str]]) -> None:
        self.cells = cells
        self.over = 0

    @property
    def here(self) -> tuple[str, str]:
        """Return the column and the method of the current cell."""
        return self.cells[min(self.over, len(self.cells) - 1)]

    def rounds(self, title: str, total: int) -> AbstractContextManager[Watch | None]:
        """Return a context that yields a function for the records of a run, or None."""
        return nullcontext()

    def say(self, text: str) -> None:
        """Show a remark."""

    def done(self, result: dict[str, Any]) -> None:
        """Show the result of the current cell and continue with the next one."""
        self.over += 1


class LineBoard(Board):
    """Progress of a bench as lines: one every few seconds, and one for every finished cell."""

    def rounds(self, title: str, total: int) -> AbstractContextManager[Watch | None]:
        """Print a line every few seconds."""
        column, label = self.here
        return nullcontext(_lines(f"{column}: training" if title == "training" else f"{column}, {label}", total))

    def say(self, text: str) -> None:
        """Print the remark."""
        print(text, file=sys.stderr, flush=True)

    def done(self, result: dict[str, Any]) -> None:
        """Print the result of the cell."""
        column, label = self.here
        super().done(result)
        said = _ended(result) + (f": {result['error']}" if "error" in result else "")
        self.say(f"[{self.over}/{len(self.cells)}] {column}, {label}: {said}")


class TableBoard(Board):
    """Progress of a bench as a live table: a row per method, and as many columns (settings and seeds) as fit."""

    TRAINING = "training"

    def __init__(self, cells: Sequence[tuple[str, str]]) -> None:
        super().__init__(cells)
        self.columns = list(dict.fromkeys(column for column, _ in cells))
        self.labels = [self.TRAINING, *dict.fromkeys(label for _, label in cells)]
        self.texts: dict[tuple[str, str], str] = {}
        self.said = ""

    @contextmanager
    def rounds(self, title: str, total: int) -> Iterator[Watch | None]:
        """Write the round number into the cell, or into the row of the training."""
        column, label = self.here
        place = (column, self.TRAINING if title == "training" else label)

        def show(record: dict[str, Any]) -> None:
            self.texts[place] = f"round {record['round']}/{max(total, record['round'])}"
            self.said = in_words(record) or self.said

        self.texts[place] = f"round 0/{total}"
        yield show
        self.said = ""

    def say(self, text: str) -> None:
        """Show the remark above the table, until the next one."""
        self.said = text

    def done(self, result: dict[str, Any]) -> None:
        """Write the result into the cell."""
        self.texts[self.here] = _ended(result)
        self.texts[self.here[0], self.TRAINING] = "done"
        super().done(result)

    def table(self, width: int) -> "RenderableType":
        """Return the table; the last column shown is the current one, unless the first columns include it."""
        from rich.table import Table
        from rich.text import Text

        fits = max(1, (width - max(map(len, self.labels)) - 4) // 24)
        end = max(fits, self.columns.index(self.here[0]) + 1)
        shown = self.columns[end - fits : end]
        table = Table(title=Text(f"{self.over} of {len(self.cells)} cells. {self.said}"), title_justify="left")
        table.add_column("method", overflow="fold")
        for column in shown:
            table.add_column(Text(column), no_wrap=True, min_width=20)
        for k, label in enumerate(self.labels):
            texts = [label, *(self.texts.get((c, label), "waiting") for c in shown)]
            table.add_row(*map(Text, texts), end_section=k == 0)
        return table


@contextmanager
def bench(cells: Sequence[tuple[str, str]], quiet: bool) -> Iterator[Board]:
    """Yield the board of a bench: a live table on a terminal, lines elsewhere, no display when quiet."""
    if quiet:
        yield Board(cells)
    elif not sys.stderr.isatty():
        yield LineBoard(cells)
    else:
        from rich.console import Console
        from rich.live import Live

        board, console = TableBoard(cells), Console(stderr=True)
        with Live(console=console, transient=True, get_renderable=lambda: board.table(console.width)):
            yield board


def _ended(result: dict[str, Any]) -> str:
    """Return the result of a cell as text: its main measurements, or its status."""
    if "stages" not in result:
        return str(result["status"])
    last = result["stages"][result["final"]]
    name, known = ("ASR", last["asr"]) if last["asr"] is not None else ("forget", last["forget_acc"])
    return " ".join(f"{n} {value:.3f}" for n, value in ((name, known), ("R-Acc", last["r_acc"])) if value is not None)
