"""Cells that were measured elsewhere: a bench can be divided among machines, or go on when its runs are gone.

A cell of another results.json is taken where setting, seed, label, method, options, experiment and audit are those that
the bench asks for. One with the same name and other settings is refused.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fupareto import experiment as experiments
from fupareto.bench import stored
from fupareto.bench.file import Bench, Cell
from fupareto.config import merged
from fupareto.errors import UserError
from fupareto.run.directory import without_none
from fupareto.vocabulary import RETRAINED, SECOND


@dataclasses.dataclass(frozen=True)
class Measured:
    """A finished cell of another bench.

    Attributes:
        path: The results.json.
        result: The cell.
        experiment: The experiment of its setting, as the bench file had it.
        sequential: Whether its clients were forgotten one after the other.
        measure_every: Rounds between measurements; None where the file does not say.
    """

    path: Path
    result: Mapping[str, Any]
    experiment: Mapping[str, Any]
    sequential: bool
    measure_every: int | None


Known = Mapping[tuple[str, int, str], Measured]  # by setting, seed and label


def read(paths: Sequence[Path]) -> Known:
    """Return the finished cells of several results.json; of two with the same name, that of the later file."""
    found = {}
    for path in paths:
        results = stored.read(path)
        settings = {
            s["name"]: merged(results.get("experiment", {}), s.get("experiment", {})) for s in results["settings"]
        }
        sequential = {m["label"]: m.get("sequential", False) for m in results["methods"]}
        for cell in results["cells"]:
            if cell.get("stages") is not None:
                setting, every = settings[cell["setting"]], results.get("measure_every")
                own = Measured(path, cell, setting, sequential[cell["label"]], every)
                found[cell["setting"], cell["seed"], cell["label"]] = own
    return found


def find(known: Known, cell: Cell, bench: Bench) -> dict[str, Any] | None:
    """Return the result of a cell that was measured elsewhere; None if there is none.

    Raises:
        UserError: A cell of this name was measured with other settings.
    """
    own = known.get((cell.setting.name, cell.seed, cell.entry.label))
    if own is None:
        return None
    if differing := next(_differences(own, cell, bench), None):
        name = f"{cell.setting.name}, seed {cell.seed}, {cell.entry.label}"
        raise UserError(f"{own.path}: the cell {name} cannot be reused, it was measured with another {differing}")
    return dict(own.result)


def _differences(own: Measured, cell: Cell, bench: Bench) -> Iterator[str]:
    """Yield what a cell was measured with that is not what the bench asks for."""
    entry = cell.entry
    if (own.result.get("method"), own.sequential) != (entry.method, entry.sequential):
        yield "method"
    if own.experiment != merged(bench.experiment, cell.setting.experiment):
        yield "experiment"
    wanted = without_none(dataclasses.asdict(experiments.forgetter(cell.experiment, entry.method, entry.options)))
    options = own.result.get("options") or {}
    options = options.get("method", {}) if entry.sequential else options
    yield from (key for key in sorted({*wanted, *options}) if wanted.get(key) != options.get(key))
    if own.measure_every not in (None, bench.measure_every):
        yield "measure_every"
    if bench.audit is not None:
        lasting = own.result.get("lasting") or {}
        retrained = sum(name in lasting.get("models", {}) for name in (RETRAINED, SECOND))
        if retrained < bench.audit.retrain or bench.audit.dormancy != (lasting.get("rounds") or 0):
            yield "audit"
