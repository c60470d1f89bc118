"""Output files of a bench: results.json after every cell, tables and figures at the end.

OUT/results.json                          everything measured, with provenance
OUT/report.html                           all of the following on one page, with tables that can be sorted
OUT/table.md  table.tex                   the results, with the paper's numbers
OUT/cost.md  cost.tex                     rounds, traffic, storage, time
OUT/membership.md  membership.tex         what attacks tell of each forgotten client
OUT/lasting.md  lasting.tex               after further training, and on the way to retraining, where audits say it
OUT/convergence-SETTING.svg  .png         round by round
OUT/pareto-SETTING.svg  .png              forgetting against utility
OUT/lasting-SETTING.svg  .png             what further training brings back, where audits say it
OUT/reversion-SETTING.svg  .png           the same over the distance and the loss barrier to the initial model
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fupareto import documents
from fupareto.bench.file import slug
from fupareto.errors import UserError
from fupareto.files import make_directory, put
from fupareto.report.bench import figures, tables
from fupareto.report.bench.page import render

RESULTS = "results.json"
REPORT = "report.html"


def known(place: Path) -> int:
    """Return the number of cells in the results.json of an earlier bench; 0 if it is missing or unreadable."""
    try:
        return len(documents.parse_object(documents.read(place / RESULTS))["cells"])
    except (UserError, ValueError, KeyError, TypeError):
        return 0


def keep(place: Path, results: Mapping[str, Any]) -> Path:
    """Write results.json."""
    return put_file(place / RESULTS, json.dumps(results, indent=2, allow_nan=False).encode() + b"\n")


def write(place: Path, results: Mapping[str, Any], curves: figures.Curves) -> list[Path]:
    """Write the tables and figures and return their paths."""
    contents = {name: text.encode() for name, text in tables.files(results).items()}
    for setting in (s["name"] for s in results["settings"]):
        for name, data in figures.files(results, curves, setting).items():
            contents[name.replace(".", f"-{slug(setting)}.")] = data
    contents[REPORT] = render(results, curves).encode()
    return [put_file(place / name, data) for name, data in contents.items()]


def put_file(path: Path, data: bytes) -> Path:
    """Write a file, in a directory that is created where it is missing."""
    try:
        make_directory(path.parent)
        put(path, data)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return path
