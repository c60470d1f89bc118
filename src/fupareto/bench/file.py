"""Bench files (TOML): an experiment, its variations, methods, seeds and smaller scales."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fupareto import experiment as experiments
from fupareto.config import Experiment, Name, is_bench, located, merged, read, validate
from fupareto.documents import NUMBERS
from fupareto.errors import UserError, did_you_mean
from fupareto.methods.registry import kind
from fupareto.mistakes import explain
from fupareto.vocabulary import LARGEST_SETTING

FULL = "full"
REFERENCES = ("reference", "reference-2")  # directories of retrained models, beside the cells
CURVES = "curves"  # directory of the curves of further training, beside the cells
RESERVED = ("", "training", "w0", CURVES, *REFERENCES)

Label = Annotated[str, Field(max_length=100)]  # a name that is part of a path
Seed = Annotated[int, Field(ge=0, lt=NUMBERS)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Setting(_Section):
    """A variation of the experiment.

    Attributes:
        name: Name in tables and, as a slug, in paths.
        experiment: Changes to the experiment of the bench.
        seeds: Seeds instead of those of the bench.
        paper: Column of the paper's table.
    """

    name: Label
    experiment: dict[str, Any] = {}
    seeds: list[Seed] | None = None
    paper: dict[str, Any] = {}


class Entry(_Section):
    """A method with its options.

    Attributes:
        method: Name of the method, optionally with a preset.
        label: Name in tables and, as a slug, in paths.
        options: Options of the method.
        sequential: Whether the clients are forgotten one after the other.
        paper: Row of the paper's table.
    """

    method: Name
    label: Label
    options: dict[str, Any] = {}
    sequential: bool = False
    paper: str = ""


class Audit(_Section):
    """What every cell is audited with, besides the attacks that every run is."""

    retrain: int = Field(0, ge=0, le=2)  # retrained models, made once for all methods of a setting and seed
    dormancy: int = Field(40, ge=0, le=LARGEST_SETTING)  # further rounds among the retained clients


class Scale(_Section):
    """Changes to a bench that make it smaller.

    Attributes:
        reduced: What is smaller than in the paper, in words, for every table.
        experiment: Changes to the experiment of the bench and of every setting.
        settings: Names of the settings to run; None for all.
        seeds: Seeds of all settings, or by setting.
        options: Options for every method that has them.
        methods: Options by label of the method.
        measure_every: Rounds between measurements.
    """

    reduced: str
    experiment: dict[str, Any] = {}
    settings: list[str] | None = None
    seeds: list[Seed] | dict[str, list[Seed]] | None = None
    options: dict[str, Any] = {}
    methods: dict[str, dict[str, Any]] = {}
    measure_every: int | None = Field(None, ge=1, le=LARGEST_SETTING)
    audit: Audit | None = None


class Bench(_Section):
    """A bench file.

    Attributes:
        name: Name of the bench and of its default output directory.
        title: Title of the tables.
        reduced: What is smaller than in the paper, in words.
        paper: Table of the paper to compare with.
        seeds: Seeds of every setting that has none of its own.
        measure_every: Rounds between measurements of the model.
        experiment: The experiment that all settings share.
        settings: Variations of the experiment.
        methods: Methods to compare.
        scales: Smaller versions of the bench, by name.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=100)
    title: Name
    reduced: str = ""
    paper: Literal["", "table1", "ablation"] = ""
    seeds: list[Seed] = Field(min_length=1)
    measure_every: int = Field(1, ge=1, le=LARGEST_SETTING)
    experiment: dict[str, Any]
    settings: list[Setting] = Field(min_length=1)
    methods: list[Entry] = Field(min_length=1)
    audit: Audit | None = None
    scales: dict[str, Scale] = {}

    @model_validator(mode="after")
    def _names(self) -> "Bench":
        settings, labels = [s.name for s in self.settings], [m.label for m in self.methods]
        for what, names in (("settings", settings), ("methods", labels)):
            if len({slug(n) for n in names}) < len(names):
                raise ValueError(f"{what}: two entries have the same name")
            if any(slug(n) in RESERVED for n in names):
                raise ValueError(f"{what}: a name must have letters, and not be {', '.join(map(repr, RESERVED[1:]))}")
        for name, scale in self.scales.items():
            by_setting = list(scale.seeds) if isinstance(scale.seeds, dict) else []
            for what, used, there in (
                ("settings", scale.settings or [], settings),
                ("seeds", by_setting, settings),
                ("methods", list(scale.methods), labels),
            ):
                if unknown := [u for u in used if u not in there]:
                    raise ValueError(f"scales.{name}.{what}: {unknown[0]!r} is unknown; choose from {', '.join(there)}")
        if FULL in self.scales:
            raise ValueError(f"scales: the name '{FULL}' is reserved for the bench without changes")
        return self

    def at(self, scale: str) -> "Bench":
        """Return the bench at one of its scales."""
        if scale == FULL:
            return self
        if scale not in self.scales:
            known = [FULL, *self.scales]
            hint = did_you_mean(scale, known)
            raise UserError(f"the bench '{self.name}' has no scale '{scale}'; it has {', '.join(known)}{hint}")
        small = self.scales[scale]
        return self.model_copy(
            update={
                "reduced": small.reduced,
                "experiment": merged(self.experiment, small.experiment),
                "seeds": small.seeds if isinstance(small.seeds, list) else self.seeds,
                "settings": [_scaled(s, small) for s in self.settings if s.name in (small.settings or [s.name])],
                "methods": [m.model_copy(update={"options": _options(m, small)}) for m in self.methods],
                "measure_every": small.measure_every or self.measure_every,
                "audit": small.audit or self.audit,
            }
        )


@dataclass(frozen=True)
class Cell:
    """One method on one initial model.

    Attributes:
        setting: Setting of the bench.
        seed: Seed of the experiment.
        entry: The method with its options.
        experiment: The experiment of the setting and the seed.
        trained: Run directory of the initial model.
        out: Run directory of the cell.
    """

    setting: Setting
    seed: int
    entry: Entry
    experiment: Experiment
    trained: Path
    out: Path


def load(path: Path, scale: str = FULL) -> Bench:
    """Read and check a bench file at one of its scales; a relative .npz path is relative to the file."""
    raw = read(path, "bench file")
    if not is_bench(raw) and raw.keys() <= Experiment.model_fields.keys():
        raise UserError(
            f"{path} is an experiment file, not a bench file; run it with: fupareto train {path} --out runs/{path.stem}"
        )
    try:
        bench = Bench.model_validate(raw).at(scale)
    except ValidationError as error:
        raise UserError(explain(error, str(path), Bench)) from error
    bench = bench.model_copy(update={"experiment": located(bench.experiment, path)})
    list(cells(bench, Path()))  # report every mistake before the first training
    return bench


def cells(bench: Bench, out: Path) -> Iterator[Cell]:
    """Yield every cell, by setting and seed; ``out`` is the output directory."""
    record = sorted({kind(m.method).history for m in bench.methods} - {""})
    for setting in bench.settings:
        for seed in setting.seeds or bench.seeds:
            raw = merged(bench.experiment, setting.experiment)
            raw = merged(raw, {"name": bench.name, "seed": seed, "train": {"record": record}})
            raw["unlearn"] = {"options": {}}  # options are those of the entry
            experiment = validate(raw, f"the experiment of setting '{setting.name}'")
            place = directory(out, setting.name, seed)
            for entry in bench.methods:
                experiments.forgetter(experiment, entry.method, entry.options)  # checks the options
                yield Cell(setting, seed, entry, experiment, place / "training", place / slug(entry.label))


def directory(out: Path, setting: str, seed: int) -> Path:
    """Return the directory of a setting and seed, in which every cell has one named by the slug of its label."""
    return out / slug(setting) / f"seed-{seed}"


def slug(name: str) -> str:
    """Return a name as it appears in paths: lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("=", "")).strip("-")


def _scaled(setting: Setting, scale: Scale) -> Setting:
    seeds = scale.seeds.get(setting.name, setting.seeds) if isinstance(scale.seeds, dict) else None
    changes = {
        "experiment": merged(setting.experiment, scale.experiment),  # a scale also reduces what a setting varies
        "seeds": seeds if scale.seeds else setting.seeds,
    }
    return setting.model_copy(update=changes)


def _options(entry: Entry, scale: Scale) -> dict[str, Any]:
    known = kind(entry.method).__dataclass_fields__
    shared = {k: v for k, v in scale.options.items() if k in known}
    return {**entry.options, **shared, **scale.methods.get(entry.label, {})}
