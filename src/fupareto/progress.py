"""How does a long run show that it moves? A bar on a terminal, a plain line now and then elsewhere, on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def rounds(title: str, total: int, quiet: bool) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Yield a function that takes every round's record, or None when nothing is to be shown."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        yield from _bar(title, total)
    else:
        yield _lines(title, total)


def _bar(title: str, total: int) -> Iterator[Callable[[dict[str, Any]], None]]:
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
            said = _said(record) or said
            bar.update(task, completed=record["round"], said=said)

        yield show


def _lines(title: str, total: int) -> Callable[[dict[str, Any]], None]:
    last = time.monotonic()

    def show(record: dict[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last > 5 and _said(record):
            last = time.monotonic()
            print(f"{title}: round {record['round']} of {total}, {_said(record)}", file=sys.stderr, flush=True)

    return show


def _said(record: dict[str, Any]) -> str:
    """Say in a few words what a round did; nothing for a round that was not measured."""
    if record.get("r_acc") is None:
        return ""
    known = "ASR" if record.get("asr") is not None else "forget accuracy"
    value = record.get("asr") if record.get("asr") is not None else record.get("forget_acc")
    text = "" if record["phase"] == "train" else f"{record['phase']}, "
    return text + (f"{known} {value:.3f}, " if value is not None else "") + f"R-Acc {record['r_acc']:.3f}"


@contextmanager
def download(quiet: bool) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Yield a function of (file, bytes so far, bytes in all), or None when nothing is to be shown."""
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
