"""Tables: a CSV file whose columns are features, targets and the client that owns each row."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fupareto import documents
from fupareto.data.formats import DEFAULT_TRAIN_FRACTION, Pool
from fupareto.errors import UserError, did_you_mean
from fupareto.tasks.samples import TARGETS

LARGEST = 2**29  # bytes of a file
LARGEST_NUMBER = float(np.finfo(np.float32).max)
CLIENT = "client"


@dataclass(frozen=True)
class Columns:
    """Columns of a table that are no features.

    Attributes:
        target: The target, or several; empty for the first of labels, label, targets, target and y that there is.
        client: The client that owns the row; empty for ``client``, if there is such a column.
    """

    target: tuple[str, ...] = ()
    client: str = ""


def read_csv(path: Path, columns: Columns) -> Pool:
    """Read a CSV file in UTF-8: names of the columns in the first line, then a row of numbers per sample.

    Clients may have names or numbers, and are numbered in their order. All other columns are features, as they are.
    """
    if not path.is_file():
        raise UserError(f"the file {path} does not exist")
    names, rows = _rows(path)
    client = columns.client or (CLIENT if CLIENT in names else "")
    target = columns.target or tuple(name for name in TARGETS if name in names)[:1]
    if not target:
        raise UserError(
            f"{path} has no column {', '.join(TARGETS[:-1])} or {TARGETS[-1]}; say which column is the target with "
            f"target in [data]. The columns are {_listed(names)}"
        )
    for name in (*target, *([client] if client else [])):
        if name not in names:
            raise UserError(f"{path} has no column '{name}'{did_you_mean(name, names)}; there are {_listed(names)}")
    features = [name for name in names if name not in target and name != client]
    if not features:
        raise UserError(f"{path} has no column beside {_listed([*target, client])}; there must be a feature")
    numbers = _numbers(path, names, rows, [*features, *target])
    x, y = numbers[:, : len(features)], numbers[:, len(features) :]
    owner = _owners([row[names.index(client)] for _, row in rows], path, client) if client else None
    return Pool(x, y[:, 0] if len(target) == 1 else y, DEFAULT_TRAIN_FRACTION, owner)


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the names of the columns, and every row with the number of its line."""
    try:
        text = documents.read(path, LARGEST).decode("utf-8-sig")
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        names = [name.strip() for name in next(lines, [])]
        rows = [(lines.line_num, row) for row in lines if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file in UTF-8: {error}") from error
    if len(names) < 2:
        hint = "; columns must be separated by commas" if names and (";" in names[0] or "\t" in names[0]) else ""
        raise UserError(f"{path} has {len(names)} columns in its first line{hint}; there must be two at least")
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path} has several columns '{double[0]}'; names of columns must differ")
    if all(map(_is_number, names)):
        raise UserError(f"{path} begins with numbers; the first line must have the names of the columns")
    if not rows:
        raise UserError(f"{path} contains no samples")
    for line, row in rows:
        if len(row) != len(names):
            raise UserError(f"{path}, line {line}: {len(row)} values, but there are {len(names)} columns")
    return names, rows


def _numbers(
    path: Path, names: Sequence[str], rows: Sequence[tuple[int, list[str]]], wanted: Sequence[str]
) -> NDArray[np.float32]:
    """Return columns as numbers; the message for anything else names the line and the column."""
    places = [names.index(name) for name in wanted]
    found = np.empty((len(rows), len(places)), np.float32)
    for k, (line, row) in enumerate(rows):
        for j, place in enumerate(places):
            if not _is_number(value := row[place].strip()):
                what = f"is {value[:40]!r}, which is no number" if value else "is empty"
                raise UserError(
                    f"{path}, line {line}: column '{wanted[j]}' {what}; write categories as numbers (a column of 0 and "
                    "1 for each), and replace or leave out missing values"
                )
            found[k, j] = float(value)
    return found


def _owners(names: Sequence[str], path: Path, column: str) -> NDArray[np.int64]:
    """Return the clients of the rows, numbered in the order of their names, or of their numbers."""
    stripped = [name.strip() for name in names]
    if "" in stripped:
        raise UserError(f"{path}: column '{column}' is empty in row {stripped.index('') + 1}; every row needs a client")
    numbered = all(name.isascii() and name.isdigit() and len(name) < 19 for name in stripped)
    keys = np.array([int(name) for name in stripped]) if numbered else np.array(stripped)
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) <= LARGEST_NUMBER  # not for NaN
    except ValueError:
        return False


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name for name in names[:20] if name)
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"
