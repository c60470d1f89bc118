"""Stored benches: results.json, read and checked, and the rounds of the runs beside it."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fupareto import documents
from fupareto.bench.file import Label, Seed, directory, slug
from fupareto.errors import UserError
from fupareto.run.directory import Run

Curves = dict[str, dict[str, list[list[dict[str, Any]]]]]  # setting -> label -> seeds -> rounds
Measures = dict[str, float | None]
KEYS = ("asr", "r_acc", "r_acc_std", "forget_acc", "distance")


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Setting(_Part):
    name: Label
    seeds: list[Seed] = Field(min_length=1)
    paper: dict[str, Any]


class _Method(_Part):
    label: Label
    method: str
    paper: str


class _Attack(_Part):
    auc: float | None = None
    low: float | None = None
    high: float | None = None


class _Attacked(_Part):
    clients: dict[str, _Attack | None]
    mean: _Attack | None


class _Lasting(_Part):
    models: dict[str, dict[str, Any]] = {}
    way: dict[str, Any] = {}
    retraining: dict[str, float | None] = {}


class _Cell(_Part):
    setting: str
    seed: int
    label: str
    status: str
    error: str = ""
    stages: dict[str, Measures] | None = None
    cost: dict[str, float | None] | None = None
    until: dict[str, float | None] | None = None
    final: str = ""
    membership: dict[str, _Attacked] = {}
    lasting: _Lasting = _Lasting()

    @model_validator(mode="after")
    def _whole(self) -> "_Cell":
        if self.stages is None:
            if not self.error:
                raise ValueError("a cell has neither stages nor an error")
            return self
        lacking = [key for stage in self.stages.values() for key in KEYS if key not in stage]
        if "initial" not in self.stages or lacking or self.cost is None:
            raise ValueError(f"a cell lacks {lacking[0] if lacking else 'cost' if 'initial' in self.stages else 'w0'}")
        for what in (self.membership, self.lasting.models):
            if what and not {"initial", self.final} <= what.keys():
                raise ValueError("an attack or audit of a cell lacks its initial or its final model")
        return self


class _Results(_Part):
    format: Literal[1]
    name: str
    title: str
    scale: str
    reduced: str
    measure_every: int | None = None
    paper: Literal["", "table1", "ablation"]
    versions: dict[str, Any] = {}
    settings: list[_Setting] = Field(min_length=1)
    methods: list[_Method] = Field(min_length=1)
    cells: list[_Cell]

    @model_validator(mode="after")
    def _known(self) -> "_Results":
        settings, labels = {s.name for s in self.settings}, {m.label for m in self.methods}
        for cell in self.cells:
            if cell.setting not in settings or cell.label not in labels:
                raise ValueError(f"a cell is of {cell.setting}, {cell.label}, which is not listed")
        return self


def read(path: Path) -> dict[str, Any]:
    """Return the content of a results.json.

    Raises:
        UserError: The file cannot be read, or is not a bench's.
    """
    try:
        found = documents.parse_object(documents.read(path))
        _Results.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} is not the results.json of a bench: {place or 'it'}: {first['msg']}") from error
    except ValueError as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return found


def curves(results: Mapping[str, Any], out: Path) -> Curves:
    """Return the recorded rounds of every cell of ``results`` whose run directory is in ``out``."""
    found: Curves = {}
    keys = ("round", "stage", *KEYS)
    for setting in results["settings"]:
        for seed, method in product(setting["seeds"], results["methods"]):
            place = directory(out, setting["name"], seed) / slug(method["label"])
            if Run.begun(place):
                rounds = [{k: r.get(k) for k in keys} for r in Run.open(place).rounds()]
                found.setdefault(setting["name"], {}).setdefault(method["label"], []).append(rounds)
    return found
